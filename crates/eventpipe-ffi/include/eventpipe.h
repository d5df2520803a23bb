/* EventPipe: an in-process tracing runtime that dotnet-trace, dotnet-counters, PerfView and `eventpipe` attach to.
 * docs/c.md of the project says how to build and link it; examples/requests.c is a whole program.
 *
 * Every function may be called by any thread at any time, also before eventpipe_start() and after eventpipe_shutdown(). Handles (providers,
 * events) live as long as the process. A NULL handle or address is never followed: a function that returns a status answers
 * EVENTPIPE_INVALID_ARGUMENT, any other does nothing. Texts are UTF-8, closed by a zero, and copied. No function unwinds into its caller.
 *
 * Inside a function a thread must not be cancelled asynchronously, nor end by pthread_exit() in a signal handler: the C library ends the
 * process then ("exception not rethrown"). A handler may leave eventpipe_event_write() by siglongjmp(): the end of the next session then takes
 * up to ten seconds, and that thread loses events in sessions that would have it wait. It must not leave any other function in that way.
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
    EVENTPIPE_INVALID_ARGUMENT = 1, /* a NULL, a text that is not UTF-8, a type, level, id or session that does not exist */
    EVENTPIPE_TOO_MANY_SESSIONS = 2, /* 64 sessions run already */
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
    uint32_t id;        /* from 1; each event of a provider needs its own */
    const char *name;
    uint64_t keywords;  /* groups; 0: every session of the provider gets it */
    eventpipe_level level;
    uint8_t opcode;     /* 1 start, 2 stop, 0 neither */
    uint32_t version;   /* to be raised when the fields change */
    bool stack;         /* with a call stack, in sessions that ask for stacks */
    const eventpipe_field *fields; /* may be NULL where field_count is 0 */
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

/* Ends all sessions and delivers what was written; a reader that takes nothing for two seconds is given up, and all takes twenty at most. No
 * session can be started afterwards. Happens by itself at exit; needed only where a program ends by _exit(). */
void eventpipe_shutdown(void);

/* A provider; NULL when the name is NULL or not UTF-8. */
eventpipe_provider *eventpipe_provider_create(const char *name);

/* Whether some session asks for events of this level with one of these keywords (0: any). */
bool eventpipe_provider_enabled(const eventpipe_provider *provider, eventpipe_level level, uint64_t keywords);

/* Adds an event to the provider; it is enabled at once if a running session wants it. Without EVENTPIPE_OK `*event` stays as it is. */
eventpipe_status eventpipe_event_define(const eventpipe_provider *provider, const eventpipe_definition *definition, eventpipe_event **event);

/* Whether any session wants the event: ask before computing costly arguments. eventpipe_event_write() asks as well. */
bool eventpipe_event_enabled(const eventpipe_event *event);

/* Writes the event if it is enabled: the pieces, one behind the other, are its fields in order, laid out as eventpipe_type says. Nothing
 * checks that they are: a reader shows fields that the pieces end before as missing. Payloads over 65,536 bytes are lost, and counted.
 * The ids of the activity and of the one that it came from are NULL or 16 bytes. */
void eventpipe_event_write(const eventpipe_event *event, const eventpipe_piece *pieces, size_t count, const uint8_t *activity_id,
                           const uint8_t *related_activity_id);

/* UTF-16 with its closing zero, as a string field wants it. Returns how many bytes that takes; writes them to `out` unless `out` is NULL or
 * has fewer, which `size` says. What is not UTF-8 is replaced by U+FFFD; NULL is the empty text. */
size_t eventpipe_utf16(const char *text, void *out, size_t size);

/* Starts a session of the program's own into a file, which is made or replaced, and gives its number. `providers` is the list that dotnet-trace
 * takes: name[:keywords[:level[:arguments]]],... with hexadecimal keywords. `buffer_mb` is how many megabytes may wait for a slow disk, from 1
 * to 4095 (the nearest of these is taken); beyond that events are lost, and counted in the file. */
eventpipe_status eventpipe_session_start_file(const char *path, const char *providers, uint32_t buffer_mb, uint64_t *session);

/* Stops a session of eventpipe_session_start_file() and waits until its file is complete. EVENTPIPE_SYSTEM if it could not be completed, for
 * instance because the disk is full: what it holds can be read. A number can be stopped once. */
eventpipe_status eventpipe_session_stop(uint64_t session);

#ifdef __cplusplus
}
#endif
#endif
