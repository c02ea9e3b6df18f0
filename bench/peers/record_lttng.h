// The tracepoint of record_lttng.c, in the form LTTng's macros want: read several times over.
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER tutti_bench
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./record_lttng.h"

#if !defined(RECORD_LTTNG_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define RECORD_LTTNG_H
#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(tutti_bench, send, LTTNG_UST_TP_ARGS(long, a, long, b),
                           LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, a, a)
                                                   lttng_ust_field_integer(long, b, b)))
#endif

#include <lttng/tracepoint-event.h>
