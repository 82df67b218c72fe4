"""Bounds that no operator chooses, by name, with unit and reason.

Level 0: plain integers, imports nothing of ours. C has those that `core/_limits.pxd` names from a
header that setup.py writes; a bound that only one unit of C knows is in that unit. The import fails
where bounds contradict one another. A bound an operator may choose is a configuration key instead
(`config/definition.py`); a bound here closes a door that hostile or broken bytes would walk
through, or keeps one turn of a loop short for all others. The reaction at the bound is written
beside it: block, throttle, reject or close.
"""

from __future__ import annotations

from typing import Final

# --- Frames and messages: bytes from a socket -----------------------------------------------------

# The 32-bit size prefix of every request and response.
FRAME_SIZE_BYTES: Final = 4
# An array may claim no more items than this, nor more than there are bytes left. Malformed: close.
ARRAY_ITEMS_MAX: Final = 1_000_000
# Unknown tagged fields are skipped, but a request is not a place to store data. Malformed: close.
TAGGED_FIELDS_MAX: Final = 10_000
# A string of the protocol, in either encoding. A longer one: malformed, close; one that would have
# to be sent again and is too long for that: UNKNOWN_SERVER_ERROR, as Apache Kafka.
TEXT_BYTES_MAX: Final = 2**15 - 1
# A topic's name becomes a directory's name with "-<partition>" after it. INVALID_TOPIC_EXCEPTION.
TOPIC_NAME_CHARS_MAX: Final = 249
# C has a place for each API and version below these.
API_KEYS_MAX: Final = 128
API_VERSIONS_MAX: Final = 32
# Partitions that one request names, for which memory is reserved. More: it is closed.
REQUEST_PARTITIONS_MAX: Final = 100_000

# --- Network threads -----------------------------------------------------------------------------

# Of all listeners together: tables of C have a place for each. A larger num.network.threads
# is refused.
PROCESSORS_MAX: Final = 64
LISTENERS_MAX: Final = 16
# What a connection has for its handshake and its authentication together, however often a byte of
# them comes: it is one of max.connections, and has no principal yet. Longer: it is closed.
# connections.max.idle.ms is for clients that were served, and may be no bound at all. A broker has
# kbroker.authentication.timeout.ms in its place, and settings in that of the next two.
OPENING_MS_MAX: Final = 60_000
# Of them at the same time. One more: one of them is closed; of one address: it is not taken.
OPENING_MAX: Final = 1_000
OPENING_PER_IP_MAX: Final = 100
# Bytes of frames longer than 16 KB that all of them together may have sent. A token may have 512 KB
# (sasl.server.max.receive.size); most have some hundred bytes.
OPENING_BYTES_MAX: Final = 64 << 20

# Quotas of clients that have metrics: those that were used last.
QUOTA_SAMPLES_MAX: Final = 200
# Of quota.window.num: each client with a quota has so many numbers. More count as these.
QUOTA_WINDOWS_MAX: Final = 1_000

# Older records that a network thread copies into an answer when it looks for them: a batch of 16 KB
# of values with its header. A longer slice is copied when it is sent, or leaves by sendfile.
COPIED_SLICE_BYTES_MAX: Final = 18 << 10

# --- Request handlers -----------------------------------------------------------------------------

# Those that ever were, as num.io.threads goes up and down. A larger one is refused.
WORKERS_MAX: Final = 1024

# --- SASL: bytes of clients that are not known yet ------------------------------------------------

# A name as a client or an operator sends it, in UTF-8. Longer: the login fails; the change of a
# user is UNACCEPTABLE_CREDENTIAL.
USER_NAME_BYTES_MAX: Final = 1_024
# Of PBKDF2, as Apache Kafka 4.3 takes them for a new credential. Fewer or more:
# UNACCEPTABLE_CREDENTIAL; a stored credential with fewer lets its user in no more.
SCRAM_ITERATIONS_MIN: Final = 4_096
SCRAM_ITERATIONS_MAX: Final = 16_384
# Rounds that a client of ours computes for a server that it does not know yet: about a second.
# More: the login is given up.
SCRAM_SERVER_ITERATIONS_MAX: Final = 1_000_000
# Credentials that were read from their stored form, those used last: some 5 MB.
SCRAM_CREDENTIALS_KEPT_MAX: Final = 10_000
# A salt, a salted password, a key or a nonce. Longer: the login or the change of a user fails.
SCRAM_FIELD_BYTES_MAX: Final = 1_024
# A value of sasl.jaas.config, or a file of such. Longer: it is refused.
JAAS_TEXT_BYTES_MAX: Final = 1_000_000
# Of a request that comes instead of a token, which is answered with an error in its own shape.
# Longer: its connection is closed.
REFUSED_REQUEST_BYTES_MAX: Final = 16 * 1024
# Sessions with a lifetime that are known. Of more the oldest is forgotten, and its client has to
# connect again.
SASL_SESSIONS_MAX: Final = 100_000
# Of one message. More: the login fails.
SCRAM_EXTENSIONS_MAX: Final = 16
# One message, which is kept from one frame to the next: a name of 1,024 bytes that is all escapes,
# twice, a nonce and a proof, and some room. Longer: the login fails.
SCRAM_MESSAGE_BYTES_MAX: Final = 16 * 1024

# Delegation tokens of a cluster, and of one owner; a thousand take some 1 MB of memory. And the
# principals of one as text: its owner, its requester and its renewers. More are not created:
# POLICY_VIOLATION.
TOKENS_MAX: Final = 50_000
TOKENS_OF_OWNER_MAX: Final = 5_000
TOKEN_PRINCIPALS_BYTES_MAX: Final = 4_096
# Memory that they take at each broker, about: a principal of six bytes takes 200.
TOKENS_BYTES_MAX: Final = 64 * 1024 * 1024
TOKENS_OF_OWNER_BYTES_MAX: Final = 8 * 1024 * 1024

# A message of OAUTHBEARER, the token in it, and its extensions. More: the login fails.
OAUTH_MESSAGE_BYTES_MAX: Final = 64 * 1024
OAUTH_TOKEN_BYTES_MAX: Final = 48 * 1024
OAUTH_EXTENSIONS_MAX: Final = 16
# The header of a token, the id of a key, and how deep JSON is nested. More: it is refused.
JWS_HEADER_BYTES_MAX: Final = 4_096
JWS_ID_CHARS_MAX: Final = 256
JSON_DEPTH_MAX: Final = 16
# A set of keys that sign tokens, and the time that its server has to send it. More: the keys stay
# those that are known.
JWKS_BYTES_MAX: Final = 1024 * 1024
JWKS_KEYS_MAX: Final = 1_000
JWKS_FETCH_MS_MAX: Final = 30_000
# Between two fetches, however little the settings say.
JWKS_REFRESH_MS_MIN: Final = 1_000

# --- Sessions -------------------------------------------------------------------------------------

# Sessions that requests share, those used last, and the longest client id among them. Beyond either
# bound a request makes a session of its own.
SESSIONS_KEPT_MAX: Final = 1_000
KEPT_CLIENT_ID_CHARS_MAX: Final = 250
# ACLs of a cluster; a thousand take some 200 KB of memory. More are not created: POLICY_VIOLATION.
ACLS_MAX: Final = 1_000_000
# ACLs that the filters of one DeleteAcls match, and those that are looked at for filters without a
# name. More: POLICY_VIOLATION for the filters that are left.
MATCHED_ACLS_MAX: Final = 1_000_000
SEARCHED_ACLS_MAX: Final = 2_000_000
# Denials by an authorizer that differ, within this time: each has a line, and one for its repeats.
# More of them share a line; so do more than some of one principal, for others have lines too.
DENIALS_MAX: Final = 10_000
DENIALS_OF_ONE_MAX: Final = 1_000
DENIALS_PERIOD_MS: Final = 10_000
# Verdicts of the authorizer that C keeps, each of a principal, host, operation and resource, in
# sets of four: 23 MB if all are in use. Others are decided again for each request.
VERDICT_SETS_MAX: Final = 16_384
# Rights that Python knows to be allowed, each of a principal, host, operation and resource, and the
# names of one together: 8 MB at most. All are decided again where more are asked for.
KNOWN_RIGHTS_MAX: Final = 4_096
KNOWN_RIGHT_CHARS_MAX: Final = 400
# Partitions that one client follows in a fetch session; beyond it the session ends. And memory of
# all of them, 1,000 of 900 partitions by id: the oldest that are idle give way.
SESSION_PARTITIONS_MAX: Final = 100_000
SESSIONS_BYTES_MAX: Final = 128 * 1024 * 1024
# Share sessions of one connection, their partitions, and the partitions of all sessions: 250 bytes
# each. A request names no more than one connection may have.
SHARE_SESSIONS_OF_CONNECTION_MAX: Final = 100
SHARE_SESSION_PARTITIONS_MAX: Final = 10_000
SHARE_SESSIONS_PARTITIONS_MAX: Final = 200_000
# Beside these, partitions of all sessions that the broker does not know.
SHARE_SESSIONS_UNKNOWN_MAX: Final = 100_000
# A ShareFetch waits no longer, whatever it names. Clients name some hundred milliseconds.
SHARE_FETCH_WAIT_MS_MAX: Final = 300_000
# A share session ends so long after its client sends no more, also where a request of its
# connection is still waited for. Requests that it has sent before are read and applied by then.
SHARE_SESSION_LEFT_MS_MAX: Final = 5_000
# Of one answer to ShareFetch, which Python makes; a batch that is larger leaves nevertheless.
SHARE_FETCH_BYTES_MAX: Final = 8 * 1024 * 1024
# Spans of records that were spared the end of a short session, of share-partitions that have ended:
# 150 bytes each. Beyond that those of the ones that ended first are forgotten.
SHARE_SPARED_SPANS_MAX: Final = 50_000
# Records of a share-partition that wait for a delay or for their time, and parts of its window
# with a state of their own; what waits does not count in the window, which has 10,000 records at
# most. So a snapshot of its state, with 20 bytes for each part, fits into a batch of a megabyte. At
# the bounds no new records are delivered.
SHARE_DELAYED_MAX: Final = 40_000
SHARE_RANGES_MAX: Final = 40_000
# A record whose kb-deliver-at is farther away does not wait: mistaken times would stop the group.
SHARE_RECORD_WAIT_MS_MAX: Final = 30 * 24 * 3_600_000
# Of records that share groups have given up, on their way to a dead-letter topic: those of one
# batch, its bytes, unless it is one record, and batches of all share-partitions at once.
SHARE_DEAD_LETTER_RECORDS_MAX: Final = 1_000
SHARE_DEAD_LETTER_BYTES_MAX: Final = 1024 * 1024
SHARE_DEAD_LETTER_TURNS_MAX: Final = 16
# How long a client that finds no room for its share session is kept waiting for the answer.
SHARE_SESSION_REFUSAL_MS_MAX: Final = 30_000
# Share-partitions that one DescribeShareGroupOffsets may name: a question each.
SHARE_PARTITIONS_DESCRIBED_MAX: Final = 100_000

# --- Runs and trains: how much one turn does before others have theirs ----------------------------

# Records of one run: longer ones gain nothing measurable and delay the requests after them.
RUN_REQUESTS_MAX: Final = 64
RUN_BYTES_MAX: Final = 4 * 1024 * 1024
# Complete produce frames of one connection handled as one record. At the bound the train leaves.
TRAIN_FRAMES_MAX: Final = 32
TRAIN_BYTES_MAX: Final = 256 * 1024
# Requests set aside for slow files. Beyond it a handler serves the next one itself.
ASIDE_BYTES_MAX: Final = 64 * 1024 * 1024
# Requests that wait, of all connections, with the memory for their answers. Beyond it they are
# answered at once.
PARKED_BYTES_MAX: Final = 256 * 1024 * 1024

# --- Compressed records ---------------------------------------------------------------------------

# The size that a produced batch may unpack to: so many times its own, and this much in any case.
# The same formula over a frame's size bounds all of its batches together. MESSAGE_TOO_LARGE.
UNPACKED_RATIO_MAX: Final = 256
UNPACKED_BYTES_MIN: Final = 64 * 1024 * 1024
# Records on their way into another codec are in memory in pieces of this size.
UNPACKED_PIECE_BYTES: Final = 1024 * 1024
# Bytes that produces in Python hold of batches packed anew, or unpacked where C could not, all
# together. Full: the next one waits on its handler, for those that hold it do not wait.
REPACKED_BYTES_MAX: Final = 256 * 1024 * 1024
# Of these one request has so many times its size, and this much in any case. MESSAGE_TOO_LARGE.
REPACKED_RATIO_MAX: Final = 16
REPACKED_BYTES_MIN: Final = 64 * 1024 * 1024

# --- Log ------------------------------------------------------------------------------------------

# A cause that clients can provoke at will is logged once in this time, with how often it came.
LOG_LINE_PERIOD_MS: Final = 1_000
# A client whose requests are not served is named once in this time: an operator finds the reason,
# and the log stays short.
CUT_OFF_LINE_PERIOD_MS: Final = 60_000
# Causes with lines of their own; a client that invents more shares one line.
LOG_CAUSES_MAX: Final = 64
# Lines on groups whose members come and go, in that time; the others are counted.
LOG_GROUP_LINES_MAX: Final = 20
# Of a text from outside in a message, and of a whole line; the rest is cut.
SHOWN_CHARS_MAX: Final = 200
LOG_LINE_CHARS_MAX: Final = 4_000
# Of a text from outside in a label of a metric; a checksum follows.
LABEL_CHARS_MAX: Final = 249

# --- Threads --------------------------------------------------------------------------------------

# Between two looks of the service manager's watchdog: longer than an idle network thread sleeps.
WATCHDOG_PERIOD_MS_MIN: Final = 1_000

# A waiter beside a busy Python thread waits this long for the GIL; the default of 5 ms is felt.
GIL_SWITCH_INTERVAL_S: Final = 0.0005
# No handler and no background step holds the GIL longer in one go; longer work is cut in steps.
PYTHON_STEP_MS_MAX: Final = 1
# How often the loop of a thread of ours is entered again after it raised; then the thread is dead.
THREAD_LIVES_MAX: Final = 100
THREAD_LIFE_LONG_MS: Final = 60_000  # a life as long as this, and they are counted anew
THREAD_PAUSE_MS: Final = 10  # between two lives: a shortage of a moment must not use them all up
# How long a stop waits for each thread before it says so and goes on.
THREAD_JOIN_TIMEOUT_MS: Final = 10_000

# --- Timers and parked operations -----------------------------------------------------------------

# The wheel turns in milliseconds, Kafka's unit of every timeout; 20 buckets a wheel and a wheel of
# wheels above it: 20 ms, 400 ms, 8 s, 160 s, 53 min ...
TIMER_WHEEL_SIZE: Final = 20
# No operation is parked longer: a client's int32 of milliseconds is the largest wait there is.
DELAY_MS_MAX: Final = 2**31 - 1

# How long a DeleteRecords waits for followers, whatever time-out it names: it keeps its request in
# memory, also when its connection has gone. Clients name 30 to 60 seconds.
DELETE_RECORDS_WAIT_MS_MAX: Final = 300_000

# --- Producers ------------------------------------------------------------------------------------

# Idempotent producers of one partition, about 30 MB. Beyond it the one that has been idle longest
# is forgotten, and may then begin with any sequence.
PRODUCERS_MAX: Final = 100_000
# Producers in one DescribeProducers answer, 37 MB; further partitions are answered with an error.
DESCRIBED_PRODUCERS_MAX: Final = 1_000_000
# Settings in one CreateTopics answer, a KB for each topic; further topics are answered without.
CREATED_SETTINGS_BYTES_MAX: Final = 16 * 1024 * 1024
# Bytes that one request may have repeated because it names something more than once: so much, and
# so many times its own size; further ones are answered with an error.
REPEATED_ANSWER_BYTES_MAX: Final = 1 << 20
REPEATED_ANSWER_TIMES_MAX: Final = 16
# Producer ids taken from the store at once; a crash loses the rest of the block, never re-uses it.
PRODUCER_ID_BLOCK_SIZE: Final = 1000
# Sequence numbers are int32 and wrap to 0 after this one.
SEQUENCE_MAX: Final = 2**31 - 1

# --- Groups ---------------------------------------------------------------------------------------

# Groups of one broker, with or without members. At the bound a new one is refused:
# GROUP_MAX_SIZE_REACHED.
GROUPS_MAX: Final = 1_000_000
# Share groups of one broker among them: they stay while they are empty. At the bound a new one is
# refused: GROUP_MAX_SIZE_REACHED.
SHARE_GROUPS_MAX: Final = 10_000
# States of share-partitions in one partition of the state topic, some 90 MB; a round may add a few
# hundred beyond it. A new one is refused: POLICY_VIOLATION.
SHARE_STATES_OF_PARTITION_MAX: Final = 200_000
# The same of all partitions that a broker coordinates: some 230 MB.
SHARE_STATES_MAX: Final = 500_000
# Ids that were handed out and not yet joined with, per group. At the bound the group is full.
GROUP_PENDING_MEMBERS_MAX: Final = 10_000
# A new member has no id yet and cannot send heartbeats: its join is given up after this time.
GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
# Subtopologies of a streams group. More: STREAMS_INVALID_TOPOLOGY. And its tasks, which follow from
# the partitions of topics, too. More: it has none, and its members a status that says why.
STREAMS_SUBTOPOLOGIES_MAX: Final = 1_000
STREAMS_TASKS_MAX: Final = 100_000

# --- Peers and the controller ---------------------------------------------------------------------

# Requests in flight per connection of our own client. Full: that node is skipped this turn.
CLIENT_IN_FLIGHT_MAX: Final = 5
# Events the controller has not taken yet. Full: the caller gets an error to retry, never blocks.
CONTROLLER_EVENTS_MAX: Final = 10_000
# One image of the cluster as bytes, which a broker that starts is sent: a million partitions are
# some 60 MB. A larger one is refused by its receiver: MESSAGE_TOO_LARGE.
IMAGE_BYTES_MAX: Final = 512 * 1024 * 1024
# Names and values of all settings of topics, brokers, groups and subscriptions together: each
# broker holds them and reads them at its start. A change that goes beyond: INVALID_CONFIG.
SETTINGS_BYTES_MAX: Final = 64 * 1024 * 1024
# Notices of changed users in ZooKeeper. Of more the oldest are removed.
NOTICES_KEPT_MAX: Final = 100
# A change of users that others change at the same time is tried so often. Then:
# KAFKA_STORAGE_ERROR.
USER_CHANGE_TRIES_MAX: Final = 10
# Between two rounds over all logs: full segments to the disk, high watermarks and starts written.
LOG_CHECKPOINT_PERIOD_MS: Final = 5_000
# After a crash a start waits so long for the logs, before it serves those that are read by then;
LOG_RECOVERY_WAIT_MS: Final = 500
# and then the others come online with such a pause between two looks at the logs.
LOG_RECOVERED_PERIOD_MS: Final = 100
# Between two looks on the disk for offsets that memory does not know.
LATE_OFFSETS_PERIOD_MS: Final = 1_000
# Between two looks for deleted files that may go: how much later than asked they are gone.
LOG_REMOVAL_PERIOD_MS: Final = 500
# Files that cannot be removed are tried again after the first of these, then after twice as long
# each time, up to the second.
REMOVAL_RETRY_MS: Final = 30_000
REMOVAL_RETRY_MS_MAX: Final = 3_600_000
# Between two looks at how much room is left in the data directories.
LOG_SPACE_PERIOD_MS: Final = 1_000
# A period of a task longer than this never comes: 100 years.
TASK_PERIOD_MS_MAX: Final = 100 * 366 * 86_400_000
# A task that runs once and fails is tried again after this, until it works: what was short then
# (descriptors, memory, a thread) may be there.
TASK_RETRY_MS: Final = 1_000
# A session idle for less than this does not give way to a new one (KIP-227).
FETCH_SESSION_EVICTION_MS_MIN: Final = 120_000

# --- The admin port: HTTP for operators and Prometheus --------------------------------------------

# The kernel's queue; also all that holds connections until the HTTP side has been imported.
ADMIN_BACKLOG: Final = 64
# Prometheus, a probe and a few people. Full: one is closed that does not ask, or does not read what
# it asked for.
ADMIN_CONNECTIONS_MAX: Final = 32
# Request line and headers together. Longer: 400 and closed.
ADMIN_HEADER_BYTES_MAX: Final = 16 * 1024
# Bytes that a client sends after its request, before its answer. More: the connection is aborted.
ADMIN_AHEAD_BYTES_MAX: Final = 64 * 1024
# A request has to be complete, and its answer taken, within this. Later: the connection is aborted.
ADMIN_REQUEST_TIMEOUT_S: Final = 15
# A connection may idle between two requests: longer than two scrapes lie apart.
ADMIN_KEEP_ALIVE_S: Final = 75
# With https, after each connection is accepted: handshakes are computed on the control loop, a
# millisecond each, or four with a large key.
ADMIN_HANDSHAKE_PAUSE_S: Final = 0.01
# Scrapes that wait for the one worker; equal ones share an answer. Full: 503.
ADMIN_JOBS_MAX: Final = 4
# Questions to /why that wait for it beside the scrapes. Full: 503.
ADMIN_QUESTIONS_MAX: Final = 1
# Words of ?name=. More: 400.
ADMIN_NAMES_MAX: Final = 200

# --- The console on the admin port ----------------------------------------------------------------

# Pages that wait for one of its two threads, each. Full: 503.
CONSOLE_JOBS_MAX: Final = 8
# From a request to its page, the wait included. Later: 503.
CONSOLE_PAGE_MS_MAX: Final = 10_000
# A download; its first piece may be a long way into a log. Later: it ends.
CONSOLE_DOWNLOAD_MS_MAX: Final = 30_000
# How long one broker may take for one request of a page.
CONSOLE_CLIENT_TIMEOUT_MS: Final = 5_000
# Live tails and downloads at the same time. One more: 503.
CONSOLE_STREAMS_MAX: Final = 4
# Of them, those of one user, or of one network without a login. One more: 503.
CONSOLE_STREAMS_PER_VISITOR_MAX: Final = 2
# Rows of a stream that are sent at once, and its wait where nothing has come.
CONSOLE_STREAM_ROWS_MAX: Final = 200
CONSOLE_STREAM_PAUSE_MS: Final = 250
# A form. Longer: 413.
CONSOLE_BODY_BYTES_MAX: Final = 64 * 1024
# Fields of a form, or of an address. More: 400.
CONSOLE_FIELDS_MAX: Final = 200
# Visitors that have logged in; of one more, the one that was idle for longest has to log in again.
CONSOLE_SESSIONS_MAX: Final = 64
CONSOLE_SESSIONS_PER_USER_MAX: Final = 8
# Longer: the visitor has to log in again.
CONSOLE_SESSION_IDLE_MS: Final = 30 * 60_000
# A visitor's client logs in again after so long: a user that is deleted, or has another password,
# is let in no longer than that.
CONSOLE_LOGIN_AGAIN_MS: Final = 60_000
# Logins of one network in a minute, of one site, and of all networks from which no login has been
# taken yet. More: 429.
CONSOLE_LOGINS_MAX: Final = 5
CONSOLE_LOGINS_OF_SITE_MAX: Final = 40
CONSOLE_LOGINS_OF_ALL_MAX: Final = 200
CONSOLE_LOGIN_PERIOD_MS: Final = 60_000
# Networks that are remembered as those of visitors; the one that was used least recently goes.
CONSOLE_NETWORKS_MAX: Final = 256
# Of a name or a password.
CONSOLE_CREDENTIAL_CHARS_MAX: Final = 1_000
# Of an address in a page. Longer: it is no link.
CONSOLE_PATH_CHARS_MAX: Final = 4_000
# Of a text in a cell; the rest is counted. A payload may have more.
CONSOLE_TEXT_CHARS_MAX: Final = 2_000
CONSOLE_PAYLOAD_CHARS_MAX: Final = 100_000

# --- The audit log --------------------------------------------------------------------------------

# Records that wait to be written. Full: they are left out and counted.
AUDIT_WAITING_MAX: Final = 10_000
# Requests and responses that these hold.
AUDIT_WAITING_BYTES_MAX: Final = 16 * 1024 * 1024
# Items of a request (topics, ACLs, users, ...) that a record names; the rest are counted.
AUDIT_ITEMS_MAX: Final = 100
# Of a name or value in a record.
AUDIT_TEXT_CHARS_MAX: Final = 500
# A longer line loses its items.
AUDIT_LINE_BYTES_MAX: Final = 64 * 1024
# Between two lines that say how many records of a kind were left out.
AUDIT_LEFT_OUT_PERIOD_MS: Final = 1_000

# --- The metrics topic ----------------------------------------------------------------------------

# Records that wait because the topic cannot take them: a few rounds of a large broker. Full: the
# oldest are dropped and counted.
METRICS_SAMPLES_WAITING_MAX: Final = 20_000
# How long one attempt to write a round may take; shorter than a round's period.
METRICS_WRITE_TIMEOUT_MS: Final = 8_000

# --- How they relate ------------------------------------------------------------------------------

_RELATIONS: Final = {
    "a train fits into a run": TRAIN_FRAMES_MAX <= RUN_REQUESTS_MAX
    and TRAIN_BYTES_MAX <= RUN_BYTES_MAX,
    "a run of requests set aside is not larger than all of them": RUN_BYTES_MAX <= ASIDE_BYTES_MAX,
    "a topic's directory has a file's name": TOPIC_NAME_CHARS_MAX + len("-99999") <= 255,
    "a topic's name is a string of the protocol": TOPIC_NAME_CHARS_MAX <= TEXT_BYTES_MAX,
    "a client id that is kept is one": KEPT_CLIENT_ID_CHARS_MAX <= TEXT_BYTES_MAX,
    "a request's partitions fit into an array": REQUEST_PARTITIONS_MAX <= ARRAY_ITEMS_MAX,
    "a share group is a group": SHARE_GROUPS_MAX <= GROUPS_MAX,
    "a partition's states are some of all": SHARE_STATES_OF_PARTITION_MAX <= SHARE_STATES_MAX,
    "one request names a whole session": SESSION_PARTITIONS_MAX <= REQUEST_PARTITIONS_MAX,
    "a word has a bit for each Processor": PROCESSORS_MAX <= 64,
    "a byte counts listeners, and versions": max(LISTENERS_MAX, API_VERSIONS_MAX) <= 127,
    "a piece is part of a batch that may be unpacked": UNPACKED_PIECE_BYTES <= UNPACKED_BYTES_MIN,
    "one request leaves room for others to repack": REPACKED_BYTES_MIN < REPACKED_BYTES_MAX,
    "a batch that is repacked was unpacked": REPACKED_RATIO_MAX <= UNPACKED_RATIO_MAX,
    "a partition's producers fit into an answer": PRODUCERS_MAX <= DESCRIBED_PRODUCERS_MAX,
    "all settings fit into an image": SETTINGS_BYTES_MAX < IMAGE_BYTES_MAX,
    "a text from outside leaves room in a line": SHOWN_CHARS_MAX < LOG_LINE_CHARS_MAX,
    "a round of metrics is over before the next": METRICS_WRITE_TIMEOUT_MS < 10_000,
    "a connection idles for longer than it asks": ADMIN_REQUEST_TIMEOUT_S < ADMIN_KEEP_ALIVE_S,
    "a page is made before its connection ends": CONSOLE_PAGE_MS_MAX
    < ADMIN_REQUEST_TIMEOUT_S * 1_000,
    "pages that wait, and streams, have connections": 2 * CONSOLE_JOBS_MAX + CONSOLE_STREAMS_MAX
    < ADMIN_CONNECTIONS_MAX,
    "a link can be followed": 3 * CONSOLE_PATH_CHARS_MAX < ADMIN_HEADER_BYTES_MAX,
    "scrapes that wait have connections": ADMIN_JOBS_MAX <= ADMIN_CONNECTIONS_MAX <= ADMIN_BACKLOG,
}
if _broken := [relation for relation, holds in _RELATIONS.items() if not holds]:
    raise ValueError(f"bounds of limits.py contradict: {'; '.join(_broken)}")
