/* Mapped memory that another program may take away.
 *
 * If a file becomes shorter, reading the lost part of its mapping raises SIGBUS, which ends the process. Around
 * a walk over mapped memory a `Guard` says which addresses are being read by which thread. A fault there
 * returns to the `sigsetjmp` of that walk; any other SIGBUS goes to whatever handled it before us. Guards are
 * found in a fixed table, not in thread-local storage: the first use of that may allocate memory, which a
 * handler must not do.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

typedef struct { const char *from; size_t size; } Range;

typedef struct {
    sigjmp_buf back;
    pthread_t thread;
    pid_t process; /* a forked child has a copy of the table, and none of the threads */
    const Range *ranges;
    size_t count;
    const char *volatile lost; /* the address that could not be read */
} Guard;

#define GUARDS 256
static _Atomic(Guard *) guards[GUARDS];
static _Atomic(const struct sigaction *) earlier; /* the handler before ours; never freed, a handler may be reading it */
static atomic_int passing;                        /* a fault is with the earlier handler, in `passing_thread` */
static pthread_t passing_thread;

static Guard *find_guard(const siginfo_t *info) {
    if (info->si_code <= 0 || info->si_code == SI_USER || info->si_code == SI_QUEUE) return NULL; /* sent, no fault */
    const char *at = info->si_addr;
    for (int i = 0; i < GUARDS; i++) {
        Guard *guard = atomic_load(&guards[i]);
        if (!guard || !pthread_equal(guard->thread, pthread_self()) || guard->process != getpid()) continue;
        for (size_t k = 0; k < guard->count; k++)
            if (at >= guard->ranges[k].from && at < guard->ranges[k].from + guard->ranges[k].size) return guard;
    }
    return NULL;
}

static void end_process(void) { /* as if there were no handler: the signal is delivered when ours returns */
    struct sigaction ending;
    memset(&ending, 0, sizeof ending);
    ending.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &ending, NULL);
    raise(SIGBUS);
}

/* Hand a signal that is not ours to the earlier handler. Python's faulthandler prints, restores what it found when
 * it was enabled, which may be ours, and raises the signal again: that must not go round in a circle. */
static void pass_on(int number, siginfo_t *info, void *context) {
    const struct sigaction *before = atomic_load(&earlier);
    int fault = info->si_code > 0 && info->si_code != SI_USER && info->si_code != SI_QUEUE;
    int again = !fault && atomic_load(&passing) && pthread_equal(passing_thread, pthread_self());
    int plain = !(before->sa_flags & SA_SIGINFO);
    if (again || (plain && before->sa_handler == SIG_DFL)) { end_process(); return; }
    if (plain && before->sa_handler == SIG_IGN) { if (fault) end_process(); return; }
    passing_thread = pthread_self();
    atomic_store(&passing, 1);
    if (plain) before->sa_handler(number);
    else before->sa_sigaction(number, info, context);
    sigset_t waiting;
    if (sigpending(&waiting) || !sigismember(&waiting, SIGBUS)) atomic_store(&passing, 0);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    Guard *guard = find_guard(info);
    if (guard) {
        guard->lost = info->si_addr;
        siglongjmp(guard->back, 1);
    }
    int kept = errno;
    pass_on(number, info, context);
    errno = kept;
}

/* Make ours the handler of SIGBUS, unless it is. Called before every guarded walk, with the GIL: somebody may have
 * installed another one since. Returns 0 on failure. */
static int install_handler(void) {
    struct sigaction now, ours;
    if (sigaction(SIGBUS, NULL, &now)) return 0;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error) return 1;
    struct sigaction *kept = malloc(sizeof *kept);
    if (!kept) return 0;
    *kept = now;
    atomic_store(&earlier, kept);
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus_error;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | (now.sa_flags & SA_RESTART);
    sigemptyset(&ours.sa_mask);
    return sigaction(SIGBUS, &ours, NULL) == 0;
}

/* Put a guard into the table; the slot it is in. Waits while as many threads as there are slots are walking. */
static int enter_guard(Guard *guard) {
    guard->thread = pthread_self();
    guard->process = getpid();
    guard->lost = NULL;
    for (;; sched_yield())
        for (int i = 0; i < GUARDS; i++) {
            Guard *none = NULL;
            if (!atomic_load(&guards[i]) && atomic_compare_exchange_strong(&guards[i], &none, guard)) return i;
        }
}

static void leave_guard(int slot) { atomic_store(&guards[slot], NULL); }
