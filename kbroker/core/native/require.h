/* The hot half of `require` (_require.pxd): a compare, and a branch that the compiler lays out so
 * that the way on is straight. The cold half is a function of another unit. */
#ifndef KBROKER_REQUIRE_H
#define KBROKER_REQUIRE_H

static inline int kb_likely(int condition) { return __builtin_expect(condition != 0, 1); }

/* After a call that ends the process: the compiler keeps nothing for what would follow. Without it
 * a function with a `require` saves registers on its way in, each time. */
static inline void kb_process_has_ended(void) { __builtin_unreachable(); }

#endif
