/* A C program with two events, recorded into a file by itself: requests FILE COUNT */
#include <stdio.h>
#include <stdlib.h>

#include "eventpipe.h"

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: requests FILE COUNT\n");
        return 2;
    }
    eventpipe_start();
    eventpipe_provider *provider = eventpipe_provider_create("Demo-Requests-C");
    const eventpipe_field fields[] = {{"Id", EVENTPIPE_UINT64}, {"Path", EVENTPIPE_STRING}};
    const eventpipe_definition definition = {
        .id = 1, .name = "RequestStart", .keywords = 1, .level = EVENTPIPE_INFORMATIONAL, .opcode = 1, .fields = fields, .field_count = 2};
    eventpipe_event *started = NULL;
    if (eventpipe_event_define(provider, &definition, &started) != EVENTPIPE_OK) return 1;

    uint64_t session = 0;
    eventpipe_status status = eventpipe_session_start_file(argv[1], "Demo-Requests-C:1:4", 16, &session);
    if (status != EVENTPIPE_OK) {
        fprintf(stderr, "no session: status %d\n", status);
        return 1;
    }
    char path[64];
    size_t path_size = eventpipe_utf16("/caf\xC3\xA9", path, sizeof path);
    for (uint64_t id = 0; id < strtoull(argv[2], NULL, 10); id++) {
        if (eventpipe_event_enabled(started)) {
            const eventpipe_piece pieces[] = {{&id, sizeof id}, {path, path_size}};
            eventpipe_event_write(started, pieces, 2, NULL, NULL);
        }
    }
    return eventpipe_session_stop(session) == EVENTPIPE_OK ? 0 : 1;
}
