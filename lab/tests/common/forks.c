/* Linked into a NativeAOT program: forks while its threads write, from when the file FORKS_START exists on, and as often as FORKS says,
   which the end of the program waits for. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_t thread;
static int is_to_wait;

static void *forks(void *start) {
    int all = atoi(getenv("FORKS")), good = 0;
    while (access(start, F_OK) != 0)
        usleep(1000);
    for (int i = 0; i < all; i++) {
        pid_t child = fork();
        if (child == 0) {
            is_to_wait = 0;
            alarm(60); /* a child that hangs is no good one */
            if (i % 2)
                exit(0); /* with everything that a program does at its end */
            _exit(0);
        }
        int status;
        good += waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    fprintf(stderr, "forks %d good %d\n", all, good);
    return NULL;
}

__attribute__((constructor)) static void begin(void) {
    char *start = getenv("FORKS_START");
    is_to_wait = start && pthread_create(&thread, NULL, forks, start) == 0;
}

__attribute__((destructor)) static void end(void) {
    if (is_to_wait)
        pthread_join(thread, NULL);
}
