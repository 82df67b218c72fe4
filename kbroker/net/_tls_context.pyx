# cython: language_level=3
"""The TLS that all connections of a listener share: certificate, key, trust store, versions.

Made by Python from texts in PEM, with the GIL, before the listener opens or when its files have
changed; not changed after a transport has it. Every refusal is a ValueError with the reason in
words, without a part of a key or a password. Renegotiation, compression and early data are off;
security level 2 refuses keys and signatures below 112 bits.

No session is kept here. Without client certificates a client may resume with a ticket, whose key is
the context's own: neither another listener nor a later certificate takes it. With client
certificates there are no tickets, so that each connection proves its own.
"""

import os

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from kbroker.net._openssl import load
from kbroker.net._openssl cimport (
    CTRL_CHAIN_CERTIFICATE, CTRL_CLEAR_MODE, CTRL_DH_AUTO, CTRL_MAX_VERSION, CTRL_MIN_VERSION,
    CTRL_MODE, CTRL_READ_AHEAD, CTRL_SESSION_CACHE, FLAG_PARTIAL_CHAIN, MODE_AUTO_RETRY,
    MODE_MOVING_BUFFER, MODE_PARTIAL_WRITE, MODE_RELEASE_BUFFERS, OP_IGNORE_UNEXPECTED_EOF,
    OP_NO_COMPRESSION, OP_NO_RENEGOTIATION, OP_NO_TICKET, OP_SERVER_PREFERENCE, PEM_END,
    TLS_1_2, TLS_1_3, VERIFY_NONE, VERIFY_PEER, VERIFY_REQUIRED, OpenSsl, openssl)

cdef enum:
    SECURITY_LEVEL = 2
    CHAIN_DEPTH_MAX = 10
    CHAIN_CERTIFICATES_MAX = 100
    TRUSTED_MAX = 10000
    AUTHORITIES_BYTES_MAX = 16 << 10  # of their names; a client may refuse a longer message
    SECONDS_OF_DAY = 86400

cdef bytes _NOTHING = b""
_VERSIONS = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
_CLIENT_AUTH = {
    "none": VERIFY_NONE, "requested": VERIFY_PEER, "required": VERIFY_PEER | VERIFY_REQUIRED}


cdef str _reason(const OpenSsl* ssl):
    # Of the last failure, and the queue is empty after it.
    cdef unsigned long code = ssl.get_error()
    cdef const char* text = ssl.reason_text(code)
    ssl.clear_error()
    return text.decode("ascii", "replace") if text != NULL else "it does not parse"


cdef class TlsContext:
    """`library`: the file of libssl; empty: it is looked for."""

    def __cinit__(self, str library=""):
        cdef const OpenSsl* ssl
        load(library)
        ssl = openssl()
        self.context = ssl.new_context(ssl.server_method())
        if self.context == NULL:
            raise ValueError(f"TLS cannot begin: {_reason(ssl)}")
        ssl.set_options(
            self.context, OP_IGNORE_UNEXPECTED_EOF | OP_NO_COMPRESSION | OP_SERVER_PREFERENCE
            | OP_NO_RENEGOTIATION)
        ssl.control_context(
            self.context, CTRL_MODE,
            MODE_PARTIAL_WRITE | MODE_MOVING_BUFFER | MODE_RELEASE_BUFFERS, NULL)
        ssl.control_context(self.context, CTRL_CLEAR_MODE, MODE_AUTO_RETRY, NULL)
        ssl.control_context(self.context, CTRL_READ_AHEAD, 1, NULL)
        ssl.control_context(self.context, CTRL_SESSION_CACHE, 0, NULL)
        ssl.set_security_level(self.context, SECURITY_LEVEL)
        ssl.set_verify_depth(self.context, CHAIN_DEPTH_MAX)
        ssl.set_num_tickets(self.context, 1)
        name = os.urandom(32)
        ssl.set_session_id_context(self.context, <const uint8_t*><const char*>name, 32)

    def __dealloc__(self):
        cdef const OpenSsl* ssl = openssl()
        if ssl == NULL:
            return
        if self.certificate != NULL:
            ssl.free_certificate(self.certificate)
        if self.context != NULL:
            ssl.free_context(self.context)

    def use_versions(self, versions):
        """TLSv1.2, TLSv1.3, or both."""
        cdef const OpenSsl* ssl = openssl()
        numbers = [_VERSIONS[each] for each in versions]
        ssl.control_context(self.context, CTRL_MIN_VERSION, min(numbers), NULL)
        ssl.control_context(self.context, CTRL_MAX_VERSION, max(numbers), NULL)

    def use_suites(self, list of_1_2, list of_1_3):
        """OpenSSL's names of cipher suites, the preferred ones first."""
        cdef const OpenSsl* ssl = openssl()
        cdef bytes names = ":".join(of_1_2).encode()
        if of_1_2 and not ssl.set_cipher_list(self.context, names):
            raise ValueError(f"this libssl has none of them: {_reason(ssl)}")
        names = ":".join(of_1_3).encode()
        if not ssl.set_ciphersuites(self.context, names):
            raise ValueError(f"this libssl has not all of them: {_reason(ssl)}")
        if any([each.startswith("DHE-") for each in of_1_2]):
            ssl.control_context(self.context, CTRL_DH_AUTO, 1, NULL)

    def use_certificates(self, bytes pem not None):
        """The chain, the broker's own certificate first."""
        cdef const OpenSsl* ssl = openssl()
        cdef _Certificates chain = _Certificates(pem, CHAIN_CERTIFICATES_MAX)
        cdef void* certificate = chain.take()
        while certificate != NULL:
            added = self._add(certificate)
            ssl.free_certificate(certificate)
            if not added:
                raise ValueError(_reason(ssl))
            certificate = chain.take()

    cdef int _add(self, void* certificate):
        # 1: it is in the chain.
        cdef const OpenSsl* ssl = openssl()
        if self.certificate != NULL:
            return ssl.control_context(
                self.context, CTRL_CHAIN_CERTIFICATE, 1, certificate) == 1
        if ssl.use_certificate(self.context, certificate) != 1:
            return 0
        ssl.keep_certificate(certificate)
        self.certificate = certificate
        return 1

    def use_key(self, bytes pem not None, bytes password not None):
        """The private key of the first certificate; an empty password: it is not encrypted."""
        cdef const OpenSsl* ssl = openssl()
        cdef void* bio
        cdef void* key
        if b"\0" in password:
            raise ValueError("the password of the key has a character 0")
        ssl.clear_error()
        bio = ssl.memory_bio(<const char*>pem, <int>len(pem))
        # With a password, though it is empty, nothing is asked for at a terminal.
        key = ssl.read_key(bio, NULL, NULL, <void*><char*>password)
        ssl.free_bio(bio)
        if key == NULL:
            raise ValueError(f"the private key cannot be read: {_reason(ssl)}")
        failed = ssl.use_key(self.context, key) != 1 or ssl.check_key(self.context) != 1
        ssl.free_key(key)
        if failed:
            raise ValueError(f"the private key is not the certificate's: {_reason(ssl)}")

    def verify_clients(self, str client_auth, bytes trusted):
        """none, requested or required, of clients whose certificate is among `trusted` or issued by
        one of them; None: those that this machine trusts."""
        cdef const OpenSsl* ssl = openssl()
        ssl.set_verify(self.context, _CLIENT_AUTH[client_auth], NULL)
        self.asks_clients = client_auth != "none"
        if not self.asks_clients:
            return
        ssl.set_options(self.context, OP_NO_TICKET)
        ssl.set_num_tickets(self.context, 0)
        if trusted is not None:
            _trust(self.context, _Certificates(trusted, TRUSTED_MAX))
        elif ssl.trust_default_paths(self.context) != 1:
            raise ValueError(f"what this machine trusts cannot be read: {_reason(ssl)}")

    @property
    def der(self):
        """The broker's own certificate, in DER."""
        cdef const OpenSsl* ssl = openssl()
        return _encoded(ssl.encode_certificate, self.certificate)

    @property
    def subject(self):
        """The name in it, in DER."""
        cdef const OpenSsl* ssl = openssl()
        return _encoded(ssl.encode_name, ssl.subject(self.certificate))

    @property
    def not_after(self):
        """When it expires, in seconds since 1970."""
        return _seconds(openssl().not_after(self.certificate))

    @property
    def not_before(self):
        """From when it is valid, in seconds since 1970."""
        return _seconds(openssl().not_before(self.certificate))


cdef int64_t _seconds(const void* time) except? -1:
    cdef const OpenSsl* ssl = openssl()
    cdef int days = 0
    cdef int seconds = 0
    cdef void* epoch = ssl.time_of(NULL, 0)
    cdef int known = epoch != NULL and ssl.time_difference(&days, &seconds, epoch, time)
    ssl.free_time(epoch)
    if not known:
        ssl.clear_error()
        raise ValueError("a time in a certificate does not parse")
    return days * <int64_t>SECONDS_OF_DAY + seconds


cdef _trust(void* context, _Certificates trusted):
    cdef const OpenSsl* ssl = openssl()
    cdef void* store = ssl.store_of(context)
    cdef void* certificate = trusted.take()
    cdef Py_ssize_t named_bytes = 0
    ssl.set_store_flags(store, FLAG_PARTIAL_CHAIN)
    while certificate != NULL:
        # Named to each client, which needs them only to choose among several certificates.
        named_bytes += ssl.encode_name(ssl.subject(certificate), NULL)
        added = ssl.add_trusted(store, certificate) == 1 and (
            named_bytes > AUTHORITIES_BYTES_MAX
            or ssl.add_client_authority(context, certificate) == 1)
        ssl.free_certificate(certificate)
        if not added:
            raise ValueError(_reason(ssl))
        certificate = trusted.take()


cdef bytes _encoded(int (*encode)(const void*, uint8_t**) noexcept nogil, const void* what):
    cdef int length = encode(what, NULL)
    cdef bytes into
    cdef uint8_t* at
    if length <= 0:
        raise ValueError("a certificate cannot be written")
    into = PyBytes_FromStringAndSize(NULL, length)
    at = <uint8_t*><char*>into
    encode(what, &at)
    return into


cdef class _Certificates:
    # Those of a text in PEM, one after the other; one at least, and `most` at most.
    cdef bytes text
    cdef void* bio
    cdef Py_ssize_t taken
    cdef Py_ssize_t most

    def __cinit__(self, bytes text, Py_ssize_t most):
        cdef const OpenSsl* ssl = openssl()
        self.text = text
        self.most = most
        self.bio = ssl.memory_bio(<const char*>text, <int>len(text))
        if self.bio == NULL:
            raise MemoryError
        ssl.clear_error()

    def __dealloc__(self):
        if self.bio != NULL:
            openssl().free_bio(self.bio)

    cdef void* take(self) except? NULL:
        # The caller frees it. NULL: that was the last one.
        cdef const OpenSsl* ssl = openssl()
        cdef void* certificate = ssl.read_certificate(self.bio, NULL, NULL, <void*><char*>_NOTHING)
        cdef unsigned long code
        if certificate == NULL:
            code = ssl.get_error()
            ssl.clear_error()
            if code != <unsigned long>PEM_END:
                raise ValueError(f"certificate {self.taken + 1} in it does not parse")
            if self.taken == 0:
                raise ValueError("there is no certificate in it")
            return NULL
        self.taken += 1
        if self.taken > self.most:
            ssl.free_certificate(certificate)
            raise ValueError(f"there are more than {self.most} certificates in it")
        return certificate
