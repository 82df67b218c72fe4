# cython: language_level=3
"""OpenSSL by dlopen: found when the first listener needs TLS, so that others never map it.

Order: the file that `ssl.library.path` names; the library that Python's own ssl module has mapped;
libssl.so.3; libssl.so.4. It is 3.0 or later, or refused. Once it is bound it stays: a process has
one. `load` holds the GIL; the functions are read from any thread after it.
"""

import os

from kbroker.errors import ConfigError

from kbroker.net._openssl cimport OpenSsl

cdef extern from "openssl_library.h" nogil:
    void* kb_library(const char* name, int mapped)
    int kb_library_function(void* library, const char* name, void* place)
    const char* kb_library_error()

cdef enum:
    OLDEST = 0x30000000           # OpenSSL_version_num of 3.0.0
    VERSION_TEXT = 0

LIBRARY_PATH = "ssl.library.path"
_NAMES = ("libssl.so.4", "libssl.so.3")

cdef OpenSsl _functions
cdef bint _loaded = False


cdef const OpenSsl* openssl() noexcept nogil:
    return &_functions if _loaded else NULL


def load(str path=""):
    """Binds the library and returns its version in words; ConfigError if there is none."""
    global _loaded
    if not _loaded:
        _bind(path)
        _loaded = True
    return _functions.version_text(VERSION_TEXT).decode("ascii", "replace")


def loaded_version():
    """The version of the library in words; None: no listener needed one."""
    return _functions.version_text(VERSION_TEXT).decode("ascii", "replace") if _loaded else None


cdef _bind(str path):
    cdef void* library = NULL
    cdef bytes name
    if path:
        name = os.fsencode(path)
        library = kb_library(name, 0)
        if library == NULL:
            why = kb_library_error().decode("utf-8", "replace")
            raise ConfigError(f"{LIBRARY_PATH}={path} cannot be opened: {why}", "name a libssl.so")
    else:
        for mapped in (1, 0):
            for each in _NAMES:
                name = each.encode()
                if library == NULL:
                    library = kb_library(name, mapped)
    if library == NULL:
        raise ConfigError(
            "a listener needs TLS, and this machine has no libssl",
            f"install OpenSSL 3 (Debian: libssl3), or set {LIBRARY_PATH}")
    _bind_functions(library)
    if _functions.version_number() < <unsigned long>OLDEST:
        version = _functions.version_text(VERSION_TEXT).decode("ascii", "replace")
        raise ConfigError(f"{version} is too old for TLS", f"use OpenSSL 3.0, or {LIBRARY_PATH}")


cdef _need(void* library, const char* name, void* place):
    if not kb_library_function(library, name, place):
        raise ConfigError(
            f"the libssl of this machine has no {name.decode()}",
            f"use OpenSSL 3.0 or later, or set {LIBRARY_PATH}")


cdef _bind_functions(void* library):
    cdef OpenSsl* to = &_functions
    _need(library, b"OpenSSL_version_num", &to.version_number)
    _need(library, b"OpenSSL_version", &to.version_text)
    _need(library, b"ERR_get_error", &to.get_error)
    _need(library, b"ERR_clear_error", &to.clear_error)
    _need(library, b"ERR_reason_error_string", &to.reason_text)
    _need(library, b"X509_verify_cert_error_string", &to.verify_text)
    _need(library, b"BIO_new_mem_buf", &to.memory_bio)
    _need(library, b"BIO_free", &to.free_bio)
    _need(library, b"PEM_read_bio_X509", &to.read_certificate)
    _need(library, b"PEM_read_bio_PrivateKey", &to.read_key)
    _need(library, b"X509_up_ref", &to.keep_certificate)
    _need(library, b"X509_free", &to.free_certificate)
    _need(library, b"EVP_PKEY_free", &to.free_key)
    _need(library, b"X509_get_subject_name", &to.subject)
    _need(library, b"X509_get0_notBefore", &to.not_before)
    _need(library, b"X509_get0_notAfter", &to.not_after)
    _need(library, b"ASN1_TIME_diff", &to.time_difference)
    _need(library, b"ASN1_TIME_set", &to.time_of)
    _need(library, b"ASN1_TIME_free", &to.free_time)
    _need(library, b"i2d_X509_NAME", &to.encode_name)
    _need(library, b"i2d_X509", &to.encode_certificate)
    _need(library, b"X509_STORE_add_cert", &to.add_trusted)
    _need(library, b"X509_STORE_set_flags", &to.set_store_flags)
    _bind_bios(library, to)
    _bind_contexts(library, to)
    _bind_connections(library, to)


cdef _bind_bios(void* library, OpenSsl* to):
    _need(library, b"BIO_get_new_index", &to.new_bio_kind)
    _need(library, b"BIO_meth_new", &to.new_bio_method)
    _need(library, b"BIO_meth_set_read", &to.set_bio_read)
    _need(library, b"BIO_meth_set_write", &to.set_bio_write)
    _need(library, b"BIO_meth_set_ctrl", &to.set_bio_control)
    _need(library, b"BIO_new", &to.new_bio)
    _need(library, b"BIO_set_init", &to.set_bio_init)
    _need(library, b"BIO_set_data", &to.set_bio_data)
    _need(library, b"BIO_get_data", &to.bio_data)
    _need(library, b"BIO_set_flags", &to.set_bio_flags)
    _need(library, b"BIO_clear_flags", &to.clear_bio_flags)


cdef _bind_contexts(void* library, OpenSsl* to):
    _need(library, b"TLS_server_method", &to.server_method)
    _need(library, b"SSL_CTX_new", &to.new_context)
    _need(library, b"SSL_CTX_free", &to.free_context)
    _need(library, b"SSL_CTX_ctrl", &to.control_context)
    _need(library, b"SSL_CTX_set_options", &to.set_options)
    _need(library, b"SSL_CTX_set_security_level", &to.set_security_level)
    _need(library, b"SSL_CTX_set_cipher_list", &to.set_cipher_list)
    _need(library, b"SSL_CTX_set_ciphersuites", &to.set_ciphersuites)
    _need(library, b"SSL_CTX_use_certificate", &to.use_certificate)
    _need(library, b"SSL_CTX_use_PrivateKey", &to.use_key)
    _need(library, b"SSL_CTX_check_private_key", &to.check_key)
    _need(library, b"SSL_CTX_get_cert_store", &to.store_of)
    _need(library, b"SSL_CTX_set_default_verify_paths", &to.trust_default_paths)
    _need(library, b"SSL_CTX_add_client_CA", &to.add_client_authority)
    _need(library, b"SSL_CTX_set_verify", &to.set_verify)
    _need(library, b"SSL_CTX_set_verify_depth", &to.set_verify_depth)
    _need(library, b"SSL_CTX_set_session_id_context", &to.set_session_id_context)
    _need(library, b"SSL_CTX_set_num_tickets", &to.set_num_tickets)
    _need(library, b"SSL_CTX_set_msg_callback", &to.set_message_callback)


cdef _bind_connections(void* library, OpenSsl* to):
    _need(library, b"SSL_new", &to.new_ssl)
    _need(library, b"SSL_free", &to.free_ssl)
    _need(library, b"SSL_ctrl", &to.control_ssl)
    _need(library, b"SSL_set_bio", &to.set_bio)
    _need(library, b"SSL_accept", &to.accept)
    _need(library, b"SSL_read", &to.read)
    _need(library, b"SSL_write", &to.write)
    _need(library, b"SSL_get_error", &to.error_of)
    _need(library, b"SSL_has_pending", &to.has_pending)
    _need(library, b"SSL_shutdown", &to.shutdown)
    _need(library, b"SSL_get1_peer_certificate", &to.peer_certificate)
    _need(library, b"SSL_get_verify_result", &to.verify_result)
