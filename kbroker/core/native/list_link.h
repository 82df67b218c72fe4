/* A pointer field of any struct, written by what does not know the struct: see core/_list.pxd. */

#ifndef KB_LINK_H
#define KB_LINK_H

typedef void *__attribute__((__may_alias__)) kb_link;

#endif
