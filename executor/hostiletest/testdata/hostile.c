// hostile is the tool that nobody wants to have called. `hostile STYLE [N]` does what the style says; the styles that stay print "ready" once
// all of their processes are where they want to be. It is static and needs nothing around it: no shell, no library, no /tmp, no /proc. What
// it leaves is found from outside by its program file, which no style can change. Everything ends by itself after
// two minutes, and what multiplies after 20 seconds, so that a fault of dray's costs nobody the machine.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long count; // the second argument
static char **arguments;

static void fail(const char *what) {
	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static void linger(void) {
	alarm(120);
	for (;;) pause();
}

// The gate opens when everybody who was born before has settled: has closed its end, executed a program, or ended.
static int gate[2];

static void settle(void) { close(gate[1]); }

static void ready(void) {
	char c;
	settle();
	while (read(gate[0], &c, 1) != 0 && errno == EINTR) {}
	if (write(1, "ready\n", 6) != 6) fail("writing");
}

static pid_t born(pid_t pid) {
	if (pid < 0) fail("making a process");
	return pid;
}

static void deaf_to_signals(void) {
	for (int s = 1; s < 65; s++) signal(s, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	signal(SIGALRM, SIG_DFL);
}

// stay is what an escapee does in the end, and wait_here what the leader does.
static void stay(void) { settle(); linger(); }
static void wait_here(void) { ready(); linger(); }

static void child(void) {
	if (born(fork()) == 0) stay();
	wait_here();
}

static void session(void) {
	if (born(fork()) == 0) { setsid(); stay(); }
	wait_here();
}

static void twice(int new_session) {
	pid_t middle = born(fork());
	if (middle == 0) {
		if (new_session) setsid();
		if (born(fork()) != 0) _exit(0);
		stay();
	}
	waitpid(middle, NULL, 0);
}

static void double_fork(void) { twice(0); wait_here(); }
static void double_session(void) { twice(1); wait_here(); }

static void closed(void) {
	if (born(fork()) == 0) {
		setsid();
		for (int fd = 0; fd < 1024; fd++) close(fd);
		linger();
	}
	wait_here();
}

static void cleared(void) {
	char *argv[] = {"linger", "linger", NULL}, *env[] = {NULL};
	if (born(fork()) == 0) {
		setsid();
		execve("/proc/self/exe", argv, env);
		fail("executing itself");
	}
	wait_here();
}

// The name ends the field that holds it in /proc/PID/stat, and goes on as a zombie of process 1.
static void renamed(void) {
	if (born(fork()) == 0) {
		setsid();
		prctl(PR_SET_NAME, ") Z 1 1 1 1 0");
		memset(arguments[0], ' ', strlen(arguments[0]));
		stay();
	}
	wait_here();
}

static void deaf(void) {
	deaf_to_signals();
	if (born(fork()) == 0) { setsid(); stay(); }
	wait_here();
}

static void stopped(void) {
	pid_t pid = born(fork());
	if (pid == 0) { setsid(); settle(); raise(SIGSTOP); linger(); }
	waitpid(pid, NULL, WUNTRACED);
	wait_here();
}

static void all_stopped(void) {
	if (born(fork()) == 0) { setsid(); settle(); raise(SIGSTOP); linger(); }
	ready();
	raise(SIGSTOP);
	linger();
}

static void traced(void) {
	deaf_to_signals();
	if (born(fork()) == 0) {
		setsid();
		pid_t tracee = born(fork());
		if (tracee == 0) {
			ptrace(PTRACE_TRACEME, 0, 0, 0);
			settle();
			raise(SIGSTOP);
			linger();
		}
		waitpid(tracee, NULL, __WALL);
		stay();
	}
	wait_here();
}

static void zombies(void) {
	deaf_to_signals();
	for (int n = 0; n < 3; n++)
		if (born(fork()) == 0) {
			setsid();
			for (int i = 0; i < 20; i++)
				if (born(fork()) == 0) _exit(i);
			stay();
		}
	wait_here();
}

// comet is never where one looks: each of its processes makes the next and ends.
static void comet(void) {
	time_t end = time(NULL) + 20;
	deaf_to_signals();
	for (unsigned n = 0; n < 2; n++)
		if (born(fork()) == 0) {
			setsid();
			settle();
			while (time(NULL) < end && fork() == 0) usleep(500 * (1 + n));
			_exit(0);
		}
	wait_here();
}

// A parent that waits for its vfork child sleeps in the kernel.
static void in_vfork(void) {
	if (born(fork()) == 0) {
		setsid();
		if (born((pid_t)syscall(SYS_clone, CLONE_VFORK | CLONE_FILES | SIGCHLD, 0, 0, 0, 0)) == 0) stay();
		_exit(0);
	}
	wait_here();
}

// A sibling is no descendant of the tool's: its parent is the supervisor.
static void sibling(void) {
	for (int n = 0; n < 3; n++)
		if (born((pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0)) == 0) { setsid(); stay(); }
	wait_here();
}

static void *in_thread(void *arg) {
	if (born(fork()) == 0) { setsid(); stay(); }
	if (arg != NULL) ready();
	linger();
	return NULL;
}

static void start_threads(int n, int last_tells) {
	pthread_t t;
	for (int i = 0; i < n; i++)
		if (pthread_create(&t, NULL, in_thread, last_tells && i == n - 1 ? &gate : NULL) != 0) fail("making a thread");
}

static void threads(void) {
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		if (pthread_create(&t[i], NULL, in_thread, NULL) != 0) fail("making a thread");
	usleep(2000);
	wait_here();
}

// headless is a process whose first thread has ended: /proc shows it as a zombie, and it runs on.
static void headless(void) {
	start_threads(2, 1);
	syscall(SYS_exit, 0);
}

// foster adopts what it orphans, before the supervisor can.
static void foster(void) {
	deaf_to_signals();
	if (born(fork()) == 0) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		setsid();
		twice(1);
		stay();
	}
	wait_here();
}

static void deep(void) {
	if (born(fork()) == 0) {
		for (int n = 0; n < 30; n++) {
			setsid();
			if (n % 2 == 0) signal(SIGTERM, SIG_IGN);
			if (born(fork()) != 0) stay();
		}
		stay();
	}
	wait_here();
}

static void tree(void) {
	for (int n = 0; n < 25; n++) twice(1);
	for (int n = 0; n < 25; n++)
		if (born(fork()) == 0) { setsid(); stay(); }
	wait_here();
}

static void undumpable(void) {
	if (born(fork()) == 0) { setsid(); prctl(PR_SET_DUMPABLE, 0); stay(); }
	wait_here();
}

// apart lives in process and user namespaces of its own, as first process of the one.
static void apart(void) {
	if (born(fork()) == 0) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) fail("leaving the namespaces");
		if (born(fork()) != 0) stay();
		setsid();
		if (born(fork()) == 0) stay();
		stay();
	}
	wait_here();
}

// The leader goes and leaves N processes that hold its streams.
static void leave(void) {
	for (long n = 0; n < count; n++)
		if (born(fork()) == 0) { setsid(); deaf_to_signals(); stay(); }
	ready();
	_exit(7);
}

static void bomb(void) {
	time_t end = time(NULL) + 20;
	deaf_to_signals();
	ready();
	while (time(NULL) < end) fork();
	_exit(0);
}

// ancestor gives the parent's parent, which is the agent where the parent is a supervisor.
static pid_t ancestor(void) {
	char path[64], line[256];
	int parent = 0;
	snprintf(path, sizeof path, "/proc/%d/status", getppid());
	FILE *f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof line, f) != NULL)
		if (sscanf(line, "PPid: %d", &parent) == 1) break;
	return parent;
}

// go_ahead waits for a byte, so that the test can look around before the harm is done.
static void go_ahead(void) {
	char c;
	twice(1);
	ready();
	if (read(0, &c, 1) != 1) fail("waiting for the word");
}

static void harm(pid_t whom, int sig) {
	go_ahead();
	kill(whom, sig);
	linger();
}

static void kill_all(void) { deaf_to_signals(); harm(-1, SIGKILL); }
static void kill_supervisor(void) { deaf_to_signals(); harm(getppid(), SIGKILL); }
static void kill_agent(void) { deaf_to_signals(); harm(ancestor(), SIGKILL); }
static void stop_supervisor(void) { harm(getppid(), SIGSTOP); }
static void stop_agent(void) { harm(ancestor(), SIGSTOP); }

static void kill_both(void) {
	pid_t agent = ancestor(), supervisor = getppid();
	deaf_to_signals();
	go_ahead();
	kill(supervisor, SIGSTOP);
	kill(agent, SIGKILL);
	kill(supervisor, SIGKILL);
	linger();
}

static void memory(void) {
	ready();
	for (;;) {
		char *p = malloc(1 << 20);
		if (p == NULL) fail("taking memory");
		memset(p, 1, 1 << 20);
	}
}

// memory_below ends by its child's end of memory, and tells of it by its own exit.
static void memory_below(void) {
	int status = 0;
	pid_t pid = born(fork());
	if (pid == 0) memory();
	settle();
	waitpid(pid, &status, 0);
	_exit(WIFSIGNALED(status) ? 40 + WTERMSIG(status) : 1);
}

static void write_all(int fd, const char *p, long n) {
	while (n > 0) {
		ssize_t k = write(fd, p, (size_t)(n > (256 << 10) ? 256 << 10 : n));
		if (k < 0) fail("writing");
		n -= k;
	}
}

// flood writes N bytes to both streams at once, without one newline.
static void flood(void) {
	static char block[256 << 10];
	int fd = 1;
	pid_t other = born(fork());
	if (other == 0) fd = 2;
	memset(block, fd == 1 ? 'o' : 'e', sizeof block);
	for (long left = count; left > 0; left -= (long)sizeof block)
		write_all(fd, block, left < (long)sizeof block ? left : (long)sizeof block);
	if (fd == 2) _exit(0);
	waitpid(other, NULL, 0);
	_exit(0);
}

static void drip(void) {
	for (long n = 0; n < count; n++) write_all(1, "d", 1);
	_exit(0);
}

static void mute(void) {
	ready();
	close(1);
	close(2);
	usleep(20000);
	_exit(3);
}

static void unread(void) {
	ready();
	linger();
}

// reopen writes to its streams by their names, which needs a pipe that is the user's own.
static void reopen(void) {
	const char *names[] = {"/dev/stdout", "/dev/stderr", "/dev/fd/1", "/proc/self/fd/2"};
	for (int i = 0; i < 4; i++) {
		int fd = open(names[i], O_WRONLY);
		if (fd < 0) fail(names[i]);
		write_all(fd, "x", 1);
		close(fd);
	}
	_exit(0);
}

// limit prints how many processes the container may have.
static void limit(void) {
	const char *names[] = {"/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"};
	char text[64];
	for (int i = 0; i < 2; i++) {
		int fd = open(names[i], O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
		if (n > 0) write_all(1, text, n);
		if (n > 0) _exit(0);
	}
	fail("reading the limit");
}

static void show(void) {
	printf("%d\n", getuid());
	for (int fd = 0; fd < 4096; fd++)
		if (fcntl(fd, F_GETFD) >= 0) printf("fd %d\n", fd);
	exit(0);
}

static const struct { const char *name; void (*run)(void); } styles[] = {
	{"linger", linger}, {"child", child}, {"session", session}, {"double-fork", double_fork}, {"double-session", double_session},
	{"closed", closed}, {"cleared", cleared}, {"renamed", renamed}, {"ignore-term", deaf}, {"stopped", stopped}, {"all-stopped", all_stopped},
	{"traced", traced}, {"zombies", zombies}, {"fork-chain", comet}, {"vfork", in_vfork}, {"sibling", sibling}, {"threads", threads},
	{"leader-thread-exit", headless}, {"subreaper", foster}, {"deep", deep}, {"tree", tree}, {"undumpable", undumpable}, {"own-namespace", apart},
	{"leave", leave}, {"bomb", bomb}, {"kill-all", kill_all}, {"kill-supervisor", kill_supervisor}, {"kill-agent", kill_agent},
	{"kill-both", kill_both}, {"stop-supervisor", stop_supervisor}, {"stop-agent", stop_agent}, {"memory", memory},
	{"memory-below", memory_below}, {"flood", flood}, {"byte-writes", drip}, {"mute", mute}, {"unread", unread}, {"reopen", reopen}, {"limit", limit},
	{"show", show},
};

int main(int argc, char **argv) {
	arguments = argv;
	count = argc > 2 ? atol(argv[2]) : 0;
	if (pipe2(gate, O_CLOEXEC) != 0) fail("making a pipe");
	for (size_t i = 0; argc > 1 && i < sizeof styles / sizeof styles[0]; i++)
		if (strcmp(argv[1], styles[i].name) == 0) styles[i].run();
	errno = EINVAL;
	fail("no such style");
}
