/* The system calls of the network core, with EINTR retried and addresses in one form.
 * See socket(7), tcp(7), epoll(7), sendfile(2). */
#ifndef KBROKER_SOCKET_IO_H
#define KBROKER_SOCKET_IO_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static inline ssize_t kb_recv(int fd, void *data, size_t length) {
    ssize_t got;
    do got = recv(fd, data, length, 0); while (got < 0 && errno == EINTR);
    return got;
}

/* Whether there are bytes to be received, and not just the end. */
static inline int kb_has_bytes(int fd) {
    int bytes = 0;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* Ends the sending side, behind everything that was sent. */
static inline void kb_end_sending(int fd) {
    shutdown(fd, SHUT_WR);
}

/* Throws away what the peer has sent; 1: it will send no more. The count bounds one call. */
static inline int kb_discard(int fd) {
    int turn;
    ssize_t got;
    for (turn = 0; turn < 16; turn++) {
        got = recv(fd, NULL, 1 << 20, MSG_TRUNC | MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR))
            continue;
        return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
    return 0;
}

/* `more` follows at once: the kernel may wait for it. */
static inline ssize_t kb_send(int fd, const void *data, size_t length, int more) {
    ssize_t sent;
    do sent = send(fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return sent;
}

/* MSG_MORE holds a short head back until the file range behind it follows. */
static inline ssize_t kb_send_vector(int fd, struct iovec *vector, int count, int more) {
    struct msghdr message;
    ssize_t sent;
    memset(&message, 0, sizeof(message));
    message.msg_iov = vector;
    message.msg_iovlen = (size_t)count;
    do sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    while (sent < 0 && errno == EINTR);
    return sent;
}

static inline ssize_t kb_send_file(int fd, int file, int64_t position, size_t length) {
    off_t offset = position;
    ssize_t sent;
    do sent = sendfile(fd, file, &offset, length); while (sent < 0 && errno == EINTR);
    return sent;
}

/* IPv4 comes out as its IPv4-mapped IPv6 address (::ffff:a.b.c.d) with *is_ipv6 = 0. */
static inline void kb_address(struct sockaddr_storage *from, uint8_t *address,
                              unsigned short *port, signed char *is_ipv6) {
    memset(address, 0, 16);
    *port = 0;
    *is_ipv6 = 0;
    if (from->ss_family == AF_INET) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)from;
        address[10] = address[11] = 0xff;
        memcpy(address + 12, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
    } else if (from->ss_family == AF_INET6) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)from;
        memcpy(address, &v6->sin6_addr, 16);
        *port = ntohs(v6->sin6_port);
        *is_ipv6 = !IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
    }
}

static inline void kb_addresses(int fd, uint8_t *local, unsigned short *local_port, uint8_t *peer,
                                unsigned short *peer_port, signed char *is_ipv6) {
    struct sockaddr_storage from;
    socklen_t length = sizeof(from);
    memset(&from, 0, sizeof(from));
    getsockname(fd, (struct sockaddr *)&from, &length);
    kb_address(&from, local, local_port, is_ipv6);
    length = sizeof(from);
    memset(&from, 0, sizeof(from));
    getpeername(fd, (struct sockaddr *)&from, &length);
    kb_address(&from, peer, peer_port, is_ipv6);
}

/* Both directions, edge-triggered, for the life of the socket: no epoll_ctl ever again. */
static inline int kb_epoll_add(int epoll_fd, int fd, void *data) {
    struct epoll_event event;
    memset(&event, 0, sizeof(event));
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.ptr = data;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static inline int kb_epoll_remove(int epoll_fd, int fd) {
    return epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static inline int kb_epoll_add_level(int epoll_fd, int fd, void *data) {
    struct epoll_event event;
    memset(&event, 0, sizeof(event));
    event.events = EPOLLIN;
    event.data.ptr = data;
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

/* A non-blocking connection, or -1 with errno; *peer gets its address as kb_address writes it. */
static inline int kb_accept(int listener, uint8_t *peer) {
    struct sockaddr_storage from;
    socklen_t length = sizeof(from);
    unsigned short port;
    signed char is_ipv6;
    int fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) kb_address(&from, peer, &port, &is_ipv6);
    return fd;
}

/* -1 leaves a buffer to the kernel's autotuning. */
static inline void kb_configure(int fd, int send_bytes, int receive_bytes) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    if (send_bytes > 0) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
    if (receive_bytes > 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
}

#endif
