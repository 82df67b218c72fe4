# cython: language_level=3
"""OpenSSL's functions as kbroker calls them: declared here, since there is no header at the build.

Only what has been part of its interface since 3.0. Types are opaque: `void*` is a SSL_CTX, SSL,
X509 or EVP_PKEY, as the name says. Macros of its headers are calls of `*_ctrl` with the numbers
below. Source: the manual pages of OpenSSL 3.0, and its headers for the numbers.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

ctypedef int (*PasswordCallback)(char* into, int size, int writing, void* own) noexcept nogil
ctypedef void (*MessageCallback)(
    int sent, int version, int content_type, const void* data, size_t length, void* ssl, void* own
) noexcept nogil
ctypedef int (*BioRead)(void* bio, char* into, int room) noexcept nogil
ctypedef int (*BioWrite)(void* bio, const char* data, int length) noexcept nogil
ctypedef long (*BioControl)(void* bio, int what, long number, void* own) noexcept nogil


cdef struct OpenSsl:
    # The library.
    unsigned long (*version_number)() noexcept nogil
    const char* (*version_text)(int kind) noexcept nogil
    # The thread's queue of errors.
    unsigned long (*get_error)() noexcept nogil
    void (*clear_error)() noexcept nogil
    const char* (*reason_text)(unsigned long code) noexcept nogil
    const char* (*verify_text)(long code) noexcept nogil
    # PEM.
    void* (*memory_bio)(const void* data, int length) noexcept nogil
    int (*free_bio)(void* bio) noexcept nogil
    void* (*read_certificate)(
        void* bio, void** into, PasswordCallback ask, void* own) noexcept nogil
    void* (*read_key)(void* bio, void** into, PasswordCallback ask, void* own) noexcept nogil
    int (*keep_certificate)(void* certificate) noexcept nogil
    void (*free_certificate)(void* certificate) noexcept nogil
    void (*free_key)(void* key) noexcept nogil
    # BIOs of our own.
    int (*new_bio_kind)() noexcept nogil
    void* (*new_bio_method)(int kind, const char* name) noexcept nogil
    int (*set_bio_read)(void* method, BioRead read) noexcept nogil
    int (*set_bio_write)(void* method, BioWrite write) noexcept nogil
    int (*set_bio_control)(void* method, BioControl control) noexcept nogil
    void* (*new_bio)(const void* method) noexcept nogil
    void (*set_bio_init)(void* bio, int init) noexcept nogil
    void (*set_bio_data)(void* bio, void* own) noexcept nogil
    void* (*bio_data)(void* bio) noexcept nogil
    void (*set_bio_flags)(void* bio, int flags) noexcept nogil
    void (*clear_bio_flags)(void* bio, int flags) noexcept nogil
    # Certificates.
    void* (*subject)(const void* certificate) noexcept nogil
    const void* (*not_before)(const void* certificate) noexcept nogil
    const void* (*not_after)(const void* certificate) noexcept nogil
    int (*time_difference)(
        int* days, int* seconds, const void* earlier, const void* later) noexcept nogil
    void* (*time_of)(void* into, int64_t unix_seconds) noexcept nogil
    void (*free_time)(void* time) noexcept nogil
    int (*encode_name)(const void* name, uint8_t** into) noexcept nogil
    int (*encode_certificate)(const void* certificate, uint8_t** into) noexcept nogil
    int (*add_trusted)(void* store, void* certificate) noexcept nogil
    int (*set_store_flags)(void* store, unsigned long flags) noexcept nogil
    # Contexts.
    const void* (*server_method)() noexcept nogil
    void* (*new_context)(const void* method) noexcept nogil
    void (*free_context)(void* context) noexcept nogil
    long (*control_context)(void* context, int what, long number, void* own) noexcept nogil
    uint64_t (*set_options)(void* context, uint64_t options) noexcept nogil
    void (*set_security_level)(void* context, int level) noexcept nogil
    int (*set_cipher_list)(void* context, const char* names) noexcept nogil
    int (*set_ciphersuites)(void* context, const char* names) noexcept nogil
    int (*use_certificate)(void* context, void* certificate) noexcept nogil
    int (*use_key)(void* context, void* key) noexcept nogil
    int (*check_key)(const void* context) noexcept nogil
    void* (*store_of)(const void* context) noexcept nogil
    int (*trust_default_paths)(void* context) noexcept nogil
    int (*add_client_authority)(void* context, void* certificate) noexcept nogil
    void (*set_verify)(void* context, int mode, void* callback) noexcept nogil
    void (*set_verify_depth)(void* context, int depth) noexcept nogil
    int (*set_session_id_context)(
        void* context, const uint8_t* name, unsigned int length) noexcept nogil
    int (*set_num_tickets)(void* context, size_t count) noexcept nogil
    void (*set_message_callback)(void* context, MessageCallback callback) noexcept nogil
    # Connections.
    void* (*new_ssl)(void* context) noexcept nogil
    void (*free_ssl)(void* ssl) noexcept nogil
    long (*control_ssl)(void* ssl, int what, long number, void* own) noexcept nogil
    # It takes the BIO, for both directions.
    void (*set_bio)(void* ssl, void* read, void* write) noexcept nogil
    int (*accept)(void* ssl) noexcept nogil
    int (*read)(void* ssl, void* into, int room) noexcept nogil
    int (*write)(void* ssl, const void* data, int length) noexcept nogil
    int (*error_of)(const void* ssl, int returned) noexcept nogil
    int (*has_pending)(const void* ssl) noexcept nogil
    int (*shutdown)(void* ssl) noexcept nogil
    void* (*peer_certificate)(const void* ssl) noexcept nogil
    long (*verify_result)(const void* ssl) noexcept nogil


cdef enum:
    CTRL_SET_MESSAGE_OWN = 16     # SSL_CTRL_SET_MSG_CALLBACK_ARG
    CTRL_MODE = 33
    CTRL_READ_AHEAD = 41
    CTRL_SESSION_CACHE = 44
    CTRL_CLEAR_MODE = 78
    CTRL_CHAIN_CERTIFICATE = 89   # with 1 it takes a reference of its own
    CTRL_MIN_VERSION = 123
    CTRL_MAX_VERSION = 124
    CTRL_DH_AUTO = 118

    TLS_1_2 = 0x0303
    TLS_1_3 = 0x0304

    MODE_PARTIAL_WRITE = 1
    MODE_MOVING_BUFFER = 2
    MODE_AUTO_RETRY = 4
    MODE_RELEASE_BUFFERS = 16

    OP_IGNORE_UNEXPECTED_EOF = 1 << 7
    OP_NO_TICKET = 1 << 14
    OP_NO_COMPRESSION = 1 << 17
    OP_SERVER_PREFERENCE = 1 << 22
    OP_NO_RENEGOTIATION = 1 << 30

    VERIFY_NONE = 0
    VERIFY_PEER = 1
    VERIFY_REQUIRED = 2           # with VERIFY_PEER
    FLAG_PARTIAL_CHAIN = 0x80000  # a certificate in the trust store is trusted, whatever its issuer

    BIO_KIND_SOURCE_SINK = 0x0400
    BIO_CTRL_EOF = 2
    BIO_CTRL_FLUSH = 11
    BIO_RETRY = 0x0f
    BIO_RETRY_READ = 0x09
    BIO_RETRY_WRITE = 0x0a

    PEM_END = (9 << 23) | 108     # an error: there is no further text

    ERROR_WANT_READ = 2
    ERROR_WANT_WRITE = 3
    ERROR_ZERO_RETURN = 6         # the peer has ended


# The functions; NULL before `load`, and constant after it.
cdef const OpenSsl* openssl() noexcept nogil
