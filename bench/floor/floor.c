/*
 * The least that a call can cost on this machine: the system calls that it cannot do without, and nothing else.
 *
 *   floor exec       CALLS CALLERS FILE PROGRAM   three pipes, vfork and exec, read to the end, wait
 *   floor supervised CALLS CALLERS FILE PROGRAM   the same by another process, to which the pipes are passed
 *   floor recorded   CALLS CALLERS FILE PROGRAM   a client's request to a server, which writes one page to FILE, on disk, before it has
 *                                                 the program run by another process, and one after it, before it responds
 *
 * It prints the nanoseconds of each call, one a line, and last those of all calls together. Callers make their calls at once; one
 * fdatasync serves all that wait for it.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, REQUEST = 512, RESPONSE = 1024, LOG_PAGES = 1024, MAX_CALLERS = 256 };

static char *command[2];
static int log_fd;
static int supervisors[MAX_CALLERS], clients[MAX_CALLERS], servers[MAX_CALLERS];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static long long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void read_all(int fd, char *buffer, size_t n)
{
	for (size_t done = 0; done < n;) {
		ssize_t got = read(fd, buffer + done, n - done);
		if (got <= 0)
			fail("read");
		done += got;
	}
}

static void write_all(int fd, const char *buffer, size_t n)
{
	if (write(fd, buffer, n) != (ssize_t)n)
		fail("write");
}

/* spawn starts the program with fds as its stdin, stdout and stderr. */
static pid_t spawn(const int fds[3])
{
	pid_t pid = vfork();
	if (pid == 0) {
		for (int i = 0; i < 3; i++)
			dup2(fds[i], i);
		execv(command[0], command);
		_exit(127);
	}
	if (pid < 0)
		fail("vfork");
	return pid;
}

/* finish closes the child's ends, gives it an empty stdin and reads its output to the end. */
static void finish(const int ours[3], const int theirs[3])
{
	char buffer[PAGE];
	for (int i = 0; i < 3; i++)
		close(theirs[i]);
	close(ours[0]);
	for (int i = 1; i < 3; i++) {
		while (read(ours[i], buffer, sizeof buffer) > 0)
			;
		close(ours[i]);
	}
}

static void make_pipes(int ours[3], int theirs[3])
{
	for (int i = 0; i < 3; i++) {
		int ends[2];
		if (pipe2(ends, O_CLOEXEC))
			fail("pipe2");
		ours[i] = ends[i == 0];
		theirs[i] = ends[i != 0];
	}
}

static void call_exec(int caller)
{
	int ours[3], theirs[3], status;
	(void)caller;
	make_pipes(ours, theirs);
	pid_t pid = spawn(theirs);
	finish(ours, theirs);
	if (waitpid(pid, &status, 0) != pid || status != 0)
		fail("waitpid");
}

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(3 * sizeof(int))];
};

static void call_supervised(int caller)
{
	int ours[3], theirs[3], status;
	char byte = 0;
	struct iovec data = {&byte, 1};
	union control control;
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	make_pipes(ours, theirs);
	control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof theirs), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(&control.header), theirs, sizeof theirs);
	if (sendmsg(supervisors[caller], &message, 0) != 1)
		fail("sendmsg");
	finish(ours, theirs);
	read_all(supervisors[caller], (char *)&status, sizeof status);
	if (status != 0)
		fail("program");
}

/* supervise runs the program for each message until the socket is closed. */
static void supervise(int fd)
{
	for (;;) {
		int fds[3], status;
		char byte;
		struct iovec data = {&byte, 1};
		union control control;
		struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
		if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1)
			_exit(0);
		memcpy(fds, CMSG_DATA(&control.header), sizeof fds);
		pid_t pid = spawn(fds);
		for (int i = 0; i < 3; i++)
			close(fds[i]);
		waitpid(pid, &status, 0);
		write_all(fd, (char *)&status, sizeof status);
	}
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static long written, synced;
static int syncing;

/* commit writes a page and returns when it is on disk. */
static void commit(void)
{
	static char page[PAGE];
	pthread_mutex_lock(&lock);
	long mine = ++written;
	if (pwrite(log_fd, page, PAGE, mine % LOG_PAGES * PAGE) != PAGE)
		fail("pwrite");
	while (synced < mine) {
		if (syncing) {
			pthread_cond_wait(&progress, &lock);
			continue;
		}
		syncing = 1;
		long last = written;
		pthread_mutex_unlock(&lock);
		if (fdatasync(log_fd))
			fail("fdatasync");
		pthread_mutex_lock(&lock);
		syncing = 0;
		synced = last;
		pthread_cond_broadcast(&progress);
	}
	pthread_mutex_unlock(&lock);
}

static void call_recorded(int caller)
{
	char request[REQUEST] = {0}, response[RESPONSE];
	write_all(clients[caller], request, sizeof request);
	read_all(clients[caller], response, sizeof response);
}

static void *serve(void *argument)
{
	int caller = (int)(long)argument;
	char request[REQUEST], response[RESPONSE] = {0};
	for (;;) {
		read_all(servers[caller], request, sizeof request);
		commit();
		call_supervised(caller);
		commit();
		write_all(servers[caller], response, sizeof response);
	}
	return NULL;
}

static void make_socketpair(int *one, int *other)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fail("socketpair");
	*one = pair[0];
	*other = pair[1];
}

static pid_t start_supervisor(int caller)
{
	int theirs;
	make_socketpair(&supervisors[caller], &theirs);
	pid_t pid = fork();
	if (pid == 0) {
		for (int i = 0; i <= caller; i++)
			close(supervisors[i]);
		supervise(theirs);
	}
	close(theirs);
	return pid;
}

static void open_log(const char *path)
{
	static char page[PAGE];
	log_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (int i = 0; i < LOG_PAGES; i++)
		if (log_fd < 0 || pwrite(log_fd, page, PAGE, (off_t)i * PAGE) != PAGE)
			fail(path);
	if (fdatasync(log_fd))
		fail(path);
}

static pid_t start_server(int callers)
{
	for (int i = 0; i < callers; i++)
		make_socketpair(&clients[i], &servers[i]);
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	for (int i = 0; i < callers; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, serve, (void *)(long)i))
			fail("pthread_create");
	}
	for (;;)
		pause();
}

static void (*call)(int);
static atomic_int next_call;
static int calls;
static long long *times;

static void *make_calls(void *argument)
{
	for (int i; (i = atomic_fetch_add(&next_call, 1)) < calls;) {
		long long begin = now();
		call((int)(long)argument);
		times[i] = now() - begin;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_CALLERS];
	pid_t server = 0;
	int callers = argc == 6 ? atoi(argv[3]) : 0;
	if (callers < 1 || callers > MAX_CALLERS) {
		fprintf(stderr, "usage: floor exec|supervised|recorded CALLS CALLERS FILE PROGRAM\n");
		return 2;
	}
	calls = atoi(argv[2]);
	times = calloc(calls, sizeof *times);
	command[0] = argv[5];
	call = !strcmp(argv[1], "exec") ? call_exec : !strcmp(argv[1], "supervised") ? call_supervised : call_recorded;
	for (int i = 0; i < callers; i++)
		start_supervisor(i);
	if (call == call_recorded) {
		open_log(argv[4]);
		server = start_server(callers);
	}
	for (int i = 0; i < callers; i++)
		call(i); /* not counted: the first call of each caller */
	long long begin = now();
	for (int i = 0; i < callers; i++)
		if (pthread_create(&threads[i], NULL, make_calls, (void *)(long)i))
			fail("pthread_create");
	for (int i = 0; i < callers; i++)
		pthread_join(threads[i], NULL);
	long long took = now() - begin;
	for (int i = 0; i < calls; i++)
		printf("%lld\n", times[i]);
	printf("%lld\n", took);
	if (server > 0)
		kill(server, 9);
	return 0;
}
