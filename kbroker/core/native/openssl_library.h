/* libssl and libcrypto of the machine, bound at run time: no link, no header, nothing bundled.
 *
 * Looked for when the first listener needs TLS, by a thread that holds the GIL. Where Python's own
 * ssl module has mapped a library, that one is used: one library in a process. RTLD_DEEPBIND keeps
 * another apart from the symbols of a Python that has its OpenSSL inside; musl and the sanitizers
 * do not have it. */
#ifndef KBROKER_OPENSSL_LIBRARY_H
#define KBROKER_OPENSSL_LIBRARY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>

#if defined(RTLD_DEEPBIND) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define KB_OPENSSL_OWN_SYMBOLS RTLD_DEEPBIND
#else
#define KB_OPENSSL_OWN_SYMBOLS 0
#endif

/* `mapped`: only if it is in the process already. */
static inline void *kb_library(const char *name, int mapped) {
    if (mapped) return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | KB_OPENSSL_OWN_SYMBOLS);
}

/* A function of the library or of those that it needs; a pointer of any type gets it. */
static inline int kb_library_function(void *library, const char *name, void *place) {
    void *found = dlsym(library, name);
    *(void **)place = found;
    return found != NULL;
}

/* Why the last call of the two has failed. */
static inline const char *kb_library_error(void) {
    const char *text = dlerror();
    return text ? text : "";
}

#endif
