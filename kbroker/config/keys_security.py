"""Broker keys of security: TLS, SASL, authorization.

Rows of the table only (see `key.py`). Every one may also be set for a single listener, as
`listener.name.NAME.KEY`. Values that name Java classes or Java stores are known and reported, so
that a file written for Apache Kafka is understood; they have no effect here.
"""

from __future__ import annotations

from typing import Final

from kbroker.config.key import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    PER_BROKER,
    SHORT,
    STRING,
)
from kbroker.config.key import ConfigKey as Key

AUTHORIZATION_KEYS: Final = (
    Key(
        "authorizer.class.name", STRING, "",
        "The authorizer; empty: everything is allowed.",
    ),
    Key(
        "principal.builder.class", CLASS, None,
        "The class that names the principal of a connection. Java classes do not run here.",
        dynamic=PER_BROKER,
        kafka="org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    Key(
        "connections.max.reauth.ms", LONG, 0,
        "How long a SASL session lasts before the client must authenticate again; 0: for ever.",
    ),
    Key(
        "security.providers", STRING, None,
        "Java security providers, which do not run here.",
    ),
)  # fmt: skip

SSL_KEYS: Final = (
    Key(
        "ssl.client.auth", STRING, "none",
        "Whether clients must show a certificate.",
        choices=("required", "requested", "none"), dynamic=PER_BROKER,
    ),
    Key(
        "ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"),
        "The TLS versions that connections may use.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.protocol", STRING, "TLSv1.3",
        "The TLS version to prefer.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.cipher.suites", LIST, (),
        "The cipher suites that connections may use; empty: the library's own choice.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keystore.location", STRING, None,
        "File with the broker's certificate and key.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keystore.type", STRING, "JKS",
        "Format of that file.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keystore.password", PASSWORD, None,
        "Password of that file.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keystore.key", PASSWORD, None,
        "The broker's private key itself, as PEM.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keystore.certificate.chain", PASSWORD, None,
        "The broker's certificates themselves, as PEM.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.key.password", PASSWORD, None,
        "Password of the private key.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.truststore.location", STRING, None,
        "File with the certificates that are trusted.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.truststore.type", STRING, "JKS",
        "Format of that file.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.truststore.password", PASSWORD, None,
        "Password of that file.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.truststore.certificates", PASSWORD, None,
        "The trusted certificates themselves, as PEM.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.endpoint.identification.algorithm", STRING, "https",
        "How the name in a peer's certificate is checked; empty: not at all.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.principal.mapping.rules", STRING, "DEFAULT",
        "Rules that turn a certificate's name into a principal.",
    ),
    Key(
        "ssl.allow.dn.changes", BOOLEAN, False,
        "Whether a certificate that is exchanged at run time may name another owner.",
    ),
    Key(
        "ssl.allow.san.changes", BOOLEAN, False,
        "Whether a certificate that is exchanged at run time may list other host names.",
    ),
    Key(
        "ssl.engine.factory.class", CLASS, None,
        "A Java class that makes TLS engines, which does not run here.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.provider", STRING, None,
        "A Java TLS provider, which does not run here.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.keymanager.algorithm", STRING, "SunX509",
        "How Java picks keys; without effect here.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.trustmanager.algorithm", STRING, "PKIX",
        "How Java judges certificates; without effect here.",
        dynamic=PER_BROKER,
    ),
    Key(
        "ssl.secure.random.implementation", STRING, None,
        "Where Java takes random numbers from; without effect here.",
        dynamic=PER_BROKER,
    ),
)  # fmt: skip

SASL_KEYS: Final = (
    Key(
        "sasl.enabled.mechanisms", LIST, ("GSSAPI",),
        "The SASL mechanisms that clients may use.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI",
        "The SASL mechanism between brokers.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.mechanism.controller.protocol", STRING, "GSSAPI",
        "The SASL mechanism towards a Raft controller.",
    ),
    Key(
        "sasl.jaas.config", PASSWORD, None,
        "Users and passwords of a listener and mechanism, in JAAS syntax.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.server.max.receive.size", INT, 524_288,
        "The largest request before authentication is complete.",
    ),
    Key(
        "sasl.server.callback.handler.class", CLASS, None,
        "A Java class that answers SASL questions, which does not run here.",
    ),
    Key(
        "sasl.client.callback.handler.class", CLASS, None,
        "The same for connections that the broker opens.",
    ),
    Key(
        "sasl.login.callback.handler.class", CLASS, None,
        "A Java class that answers login questions, which does not run here.",
    ),
    Key(
        "sasl.login.class", CLASS, None,
        "A Java class that logs in, which does not run here.",
    ),
    Key(
        "sasl.login.connect.timeout.ms", INT, None,
        "How long the broker waits for a connection to a login server.",
    ),
    Key(
        "sasl.login.read.timeout.ms", INT, None,
        "How long the broker waits for a login server's answer.",
    ),
    Key(
        "sasl.login.retry.backoff.ms", LONG, 100,
        "First pause before a failed login is repeated.",
    ),
    Key(
        "sasl.login.retry.backoff.max.ms", LONG, 10_000,
        "Longest pause before a failed login is repeated.",
    ),
    Key(
        "sasl.login.refresh.buffer.seconds", SHORT, 300,
        "How long before its end a login is renewed at the latest.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.login.refresh.min.period.seconds", SHORT, 60,
        "The shortest pause between two renewals of a login.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.login.refresh.window.factor", DOUBLE, 0.8,
        "Share of a login's life after which it is renewed.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.login.refresh.window.jitter", DOUBLE, 0.05,
        "Share of that time that is random.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.service.name", STRING, None,
        "The Kerberos principal name of the brokers.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit",
        "Where kinit is found.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8,
        "Share of a ticket's life after which it is renewed.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05,
        "Share of that time that is random.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.min.time.before.relogin", LONG, 60_000,
        "The shortest pause, in milliseconds, between two Kerberos logins.",
        dynamic=PER_BROKER,
    ),
    Key(
        "sasl.kerberos.principal.to.local.rules", LIST, ("DEFAULT",),
        "Rules that turn a Kerberos principal into a user name.",
        dynamic=PER_BROKER,
    ),
)  # fmt: skip

OAUTH_KEYS: Final = (
    Key(
        "sasl.oauthbearer.token.endpoint.url", STRING, None,
        "Where tokens are asked for.",
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.url", STRING, None,
        "Where the keys that sign tokens are found.",
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000,
        "Pause between two fetches of those keys.",
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100,
        "First pause before a failed fetch of keys is repeated.",
    ),
    Key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10_000,
        "Longest pause before a failed fetch of keys is repeated.",
    ),
    Key(
        "sasl.oauthbearer.clock.skew.seconds", INT, 30,
        "How far the clocks of broker and token server may differ.",
    ),
    Key(
        "sasl.oauthbearer.expected.audience", LIST, (),
        "The audiences of which a token must name one.",
    ),
    Key(
        "sasl.oauthbearer.expected.issuer", STRING, None,
        "The issuer that a token must name.",
    ),
    Key(
        "sasl.oauthbearer.scope", STRING, None,
        "The scope to ask for.",
    ),
    Key(
        "sasl.oauthbearer.scope.claim.name", STRING, "scope",
        "The claim that holds a token's scope.",
    ),
    Key(
        "sasl.oauthbearer.sub.claim.name", STRING, "sub",
        "The claim that holds a token's subject.",
    ),
    Key(
        "sasl.oauthbearer.client.credentials.client.id", STRING, None,
        "The id with which the broker asks for a token of its own.",
    ),
    Key(
        "sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None,
        "The secret that belongs to that id.",
    ),
    Key(
        "sasl.oauthbearer.jwt.retriever.class", CLASS, None,
        "A Java class that fetches tokens, which does not run here.",
        kafka="org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    ),
    Key(
        "sasl.oauthbearer.jwt.validator.class", CLASS, None,
        "A Java class that checks tokens, which does not run here.",
        kafka="org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    ),
    Key(
        "sasl.oauthbearer.assertion.algorithm", STRING, "RS256",
        "The algorithm that signs an assertion.",
        choices=("ES256", "RS256"), ignore_case=True,
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.aud", STRING, None,
        "Audience of an assertion.",
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300,
        "How long an assertion is valid.",
        low=0, high=86_400,
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.iss", STRING, None,
        "Issuer of an assertion.",
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False,
        "Give each assertion an id of its own.",
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60,
        "How far back the validity of an assertion begins.",
        low=0, high=3_600,
    ),
    Key(
        "sasl.oauthbearer.assertion.claim.sub", STRING, None,
        "Subject of an assertion.",
    ),
    Key(
        "sasl.oauthbearer.assertion.file", STRING, None,
        "File with a finished assertion.",
    ),
    Key(
        "sasl.oauthbearer.assertion.private.key.file", STRING, None,
        "File with the private key that signs assertions.",
    ),
    Key(
        "sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None,
        "Passphrase of that key.",
    ),
    Key(
        "sasl.oauthbearer.assertion.template.file", STRING, None,
        "File with further claims of an assertion.",
    ),
)  # fmt: skip

KEYS: Final = AUTHORIZATION_KEYS + SSL_KEYS + SASL_KEYS + OAUTH_KEYS
