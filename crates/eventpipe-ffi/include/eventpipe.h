/* EventPipe: an in-process tracing runtime that dotnet-trace, dotnet-counters, PerfView and `eventpipe` attach to.
 *
 * Handles (providers, events) live as long as the process and may be used by any thread at any time; NULL is allowed everywhere and does
 * nothing. Texts are UTF-8, closed by a zero, and copied. No function unwinds into its caller.
 *
 * After eventpipe_start() or a session the library that holds the engine stays loaded, also after dlclose(). */
#ifndef EVENTPIPE_H
#define EVENTPIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct eventpipe_provider eventpipe_provider;
typedef struct eventpipe_event eventpipe_event;

/* What a function that can fail returns. */
typedef enum eventpipe_status {
    EVENTPIPE_OK = 0,
    EVENTPIPE_INVALID_ARGUMENT = 1, /* a NULL where none is allowed, a text that is not UTF-8, an unknown type or level */
    EVENTPIPE_TOO_MANY_SESSIONS = 2,
    EVENTPIPE_SHUTTING_DOWN = 3,    /* the process ends, or is the child of a fork */
    EVENTPIPE_SYSTEM = 4,           /* the operating system refused memory, a thread, a descriptor or the file */
    EVENTPIPE_INTERNAL = 5          /* a mistake in this library */
} eventpipe_status;

typedef enum eventpipe_level {
    EVENTPIPE_LOG_ALWAYS = 0,
    EVENTPIPE_CRITICAL = 1,
    EVENTPIPE_ERROR = 2,
    EVENTPIPE_WARNING = 3,
    EVENTPIPE_INFORMATIONAL = 4,
    EVENTPIPE_VERBOSE = 5
} eventpipe_level;

/* Types of fields, with what each takes in a payload (little-endian, without gaps). */
typedef enum eventpipe_type {
    EVENTPIPE_BOOLEAN = 3, /* 4 bytes, 0 or 1 */
    EVENTPIPE_CHAR = 4,    /* 2 bytes, UTF-16 */
    EVENTPIPE_SBYTE = 5,
    EVENTPIPE_BYTE = 6,
    EVENTPIPE_INT16 = 7,
    EVENTPIPE_UINT16 = 8,
    EVENTPIPE_INT32 = 9,
    EVENTPIPE_UINT32 = 10,
    EVENTPIPE_INT64 = 11,
    EVENTPIPE_UINT64 = 12,
    EVENTPIPE_SINGLE = 13,
    EVENTPIPE_DOUBLE = 14,
    EVENTPIPE_GUID = 17,   /* 16 bytes */
    EVENTPIPE_STRING = 18  /* UTF-16, closed by a zero unit: eventpipe_utf16() makes it */
} eventpipe_type;

typedef struct eventpipe_field {
    const char *name;
    eventpipe_type type;
} eventpipe_field;

typedef struct eventpipe_definition {
    uint32_t id;        /* from 1 */
    const char *name;
    uint64_t keywords;  /* groups; 0: every session of the provider gets it */
    eventpipe_level level;
    uint8_t opcode;     /* 1 start, 2 stop, 0 neither */
    uint32_t version;
    bool stack;         /* with a call stack, in sessions that ask for stacks */
    const eventpipe_field *fields;
    size_t field_count;
} eventpipe_definition;

/* A piece of a payload. Where the address is NULL, it is as many zeros. */
typedef struct eventpipe_piece {
    const void *address;
    size_t size;
} eventpipe_piece;

/* Makes the process traceable: opens the diagnostics socket, starts the session that the environment asks for. Call it at the start
 * of main; calling it again does nothing. What does not work is said on standard error. */
void eventpipe_start(void);

/* Ends all sessions and delivers them. Happens by itself at exit. */
void eventpipe_shutdown(void);

/* A provider; NULL when the name is NULL or not UTF-8. */
eventpipe_provider *eventpipe_provider_create(const char *name);

/* Whether some session asks for events of this level with one of these keywords (0: any). */
bool eventpipe_provider_enabled(const eventpipe_provider *provider, eventpipe_level level, uint64_t keywords);

/* Adds an event. */
eventpipe_status eventpipe_event_define(const eventpipe_provider *provider, const eventpipe_definition *definition, eventpipe_event **event);

/* Whether any session wants the event: ask before computing costly arguments. */
bool eventpipe_event_enabled(const eventpipe_event *event);

/* Writes the event if it is enabled: the pieces, one behind the other, are its fields in order. The ids are NULL or 16 bytes. */
void eventpipe_event_write(const eventpipe_event *event, const eventpipe_piece *pieces, size_t count, const uint8_t *activity_id,
                           const uint8_t *related_activity_id);

/* UTF-16 with its closing zero, as a string field wants it. Returns the bytes that the whole text takes; writes none when `size` is less.
 * What is not UTF-8 is replaced by U+FFFD. */
size_t eventpipe_utf16(const char *text, void *out, size_t size);

/* A session into a file: `providers` as dotnet-trace takes them, name[:keywords[:level[:arguments]]],… */
eventpipe_status eventpipe_session_start_file(const char *path, const char *providers, uint32_t buffer_mb, uint64_t *session);

/* Stops a session that this function started and waits until its file is complete. */
eventpipe_status eventpipe_session_stop(uint64_t session);

#ifdef __cplusplus
}
#endif
#endif
