// The first process of a pod's sandbox: holds the namespaces, reaps orphans when the pod shares its process
// namespace, and ends at once when it is told to.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal_number) {
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number) {
    (void)signal_number;
    while (waitpid(-1, 0, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction end = {.sa_handler = leave};
    struct sigaction child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    sigaction(SIGINT, &end, 0);
    sigaction(SIGTERM, &end, 0);
    sigaction(SIGCHLD, &child, 0);
    for (;;) {
        pause();
    }
}
