/* A delay line between two TUN devices: a round-trip time where the kernel has no netem.
 *
 * Every packet that one side sends is given to the other `delay_ns` later, in order. Where
 * LINE_PACKETS are under way, or this process is not scheduled, the kernel queues, then drops, as a
 * wire does. TCP on both sides is the kernel's own: windows, acknowledgements and congestion control
 * behave as they do between two machines. With segmentation offload (TUN_F_TSO4) a packet has up to
 * 64 KB, which is what makes the line cheap.
 *
 * The delay may be changed while packets are under way (8 bytes, native, nanoseconds, on the socket
 * `control_fd`, which does not block): those keep the time that they were given, what is sent
 * behind the echo of the 8 bytes has the new one. The end of that socket's stream ends the line. */
#ifndef PERF_LINE_H
#define PERF_LINE_H

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define LINE_PACKETS 4096u           /* under way, each direction; a power of two */
#define LINE_PACKET_BYTES 65600u     /* the largest IP packet and its virtio header */
#define LINE_READS_PER_TURN 64       /* of one side, before the other has its turn */
#define LINE_TURNS_PER_LOOK 64u      /* with packets in each, before a new delay is looked for */

typedef struct {
    int64_t due_ns;
    ssize_t bytes;
    uint8_t *data;                   /* LINE_PACKET_BYTES, made at its first use */
} line_packet;

typedef struct {                     /* one direction: a ring in the order of sending */
    line_packet packets[LINE_PACKETS];
    uint32_t head, tail;
} line_way;

static int64_t line_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Hand over what is due. A far side that is down loses the packet. */
static int line_deliver(line_way *way, int to_fd, int64_t now_ns) {
    int moved = 0;
    for (; way->head != way->tail; way->head++, moved++) {
        line_packet *packet = &way->packets[way->head % LINE_PACKETS];
        if (packet->due_ns > now_ns) break;
        if (write(to_fd, packet->data, (size_t)packet->bytes) < 0 && errno == EAGAIN) break;
    }
    return moved;
}

/* Take what was sent; -1 without memory. */
static int line_take(line_way *way, int from_fd, int64_t delay_ns) {
    int moved = 0;
    for (; moved < LINE_READS_PER_TURN && way->tail - way->head < LINE_PACKETS; way->tail++, moved++) {
        line_packet *packet = &way->packets[way->tail % LINE_PACKETS];
        if (!packet->data && !(packet->data = malloc(LINE_PACKET_BYTES))) return -1;
        packet->bytes = read(from_fd, packet->data, LINE_PACKET_BYTES);
        if (packet->bytes <= 0) break;
        packet->due_ns = line_now_ns() + delay_ns;
    }
    return moved;
}

/* Take a new delay if there is one, and echo it. -1: the line is to end. */
static int line_take_delay(int control_fd, int64_t *delay_ns) {
    int64_t asked_ns;
    ssize_t n = read(control_fd, &asked_ns, sizeof asked_ns);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n != (ssize_t)sizeof asked_ns) return -1;
    *delay_ns = asked_ns;
    return write(control_fd, &asked_ns, sizeof asked_ns) == n ? 0 : -1;
}

/* Sleep until a packet is due, one comes, or there is word of the delay. -1: the line is to end. */
static int line_wait(const line_way *ways, const int *fds, int control_fd, int64_t *delay_ns) {
    struct pollfd ready[3] = {{fds[0], 0, 0}, {fds[1], 0, 0}, {control_fd, POLLIN, 0}};
    int64_t due_ns = INT64_MAX;
    for (int side = 0; side < 2; side++) {
        const line_way *way = &ways[side];
        if (way->tail - way->head < LINE_PACKETS) ready[side].events = POLLIN;
        if (way->head == way->tail) continue;
        int64_t first_ns = way->packets[way->head % LINE_PACKETS].due_ns;
        if (first_ns < due_ns) due_ns = first_ns;
    }
    int64_t wait_ns = due_ns - line_now_ns();
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (wait_ns < 0) wait = (struct timespec){0, 0};
    if (ppoll(ready, 3, due_ns == INT64_MAX ? NULL : &wait, NULL) < 0) return errno == EINTR ? 0 : -1;
    if (!ready[2].revents) return 0;
    return line_take_delay(control_fd, delay_ns);
}

/* Carry packets between two TUN devices until `control_fd` ends. 0, or -1 without memory. */
static int line_carry(int fd_a, int fd_b, int control_fd, int64_t delay_ns) {
    const int fds[2] = {fd_a, fd_b};
    int status = -1;
    line_way *ways = calloc(2, sizeof *ways);
    if (!ways) return -1;
    prctl(PR_SET_TIMERSLACK, 1);     /* the default of 50 us would be half of a short delay */
    for (uint32_t turn = 1;; turn++) {
        int moved = 0, taken = 0;
        for (int from = 0; from < 2; from++) {
            moved += line_deliver(&ways[from], fds[!from], line_now_ns());
            taken = line_take(&ways[from], fds[from], delay_ns);
            if (taken < 0) goto end;
            moved += taken;
        }
        if (!moved) {
            if (line_wait(ways, fds, control_fd, &delay_ns)) break;
        } else if (turn % LINE_TURNS_PER_LOOK == 0) {
            if (line_take_delay(control_fd, &delay_ns)) break;
        }
    }
    status = 0;
end:
    for (int side = 0; side < 2; side++)
        for (uint32_t i = 0; i < LINE_PACKETS; i++) free(ways[side].packets[i].data);
    free(ways);
    return status;
}

#endif
