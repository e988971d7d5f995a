/*
 * What the bench runs where a program of the system would differ between host and container: static, without any library, so that the
 * same file runs in both and costs no more than its exec.
 *
 *   benchtool                prints "hi"
 *   benchtool flood N        writes N bytes to stdout
 *   benchtool both N         writes N bytes to stdout and N to stderr, in turn
 *   benchtool tree N         leaves N processes behind that forked twice, each in a session of its own, prints "ready" and waits
 */

#include <stddef.h>

#if defined(__x86_64__)
enum { SYS_write = 1, SYS_pause = 34, SYS_clone = 56, SYS_wait4 = 61, SYS_setsid = 112, SYS_exit_group = 231 };
__asm__(".globl _start\n_start:\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall begin\n");

static long call4(long n, long a, long b, long c, long d)
{
	long out;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(out) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return out;
}

static void wait_for_ever(void)
{
	for (;;)
		call4(SYS_pause, 0, 0, 0, 0);
}
#elif defined(__aarch64__)
enum { SYS_write = 64, SYS_ppoll = 73, SYS_exit_group = 94, SYS_setsid = 157, SYS_clone = 220, SYS_wait4 = 260 };
__asm__(".globl _start\n_start:\n\tmov x0, sp\n\tbl begin\n");

static long call4(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = 0;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
}

static void wait_for_ever(void)
{
	for (;;)
		call4(SYS_ppoll, 0, 0, 0, 0);
}
#else
#error "no system calls are known here for this machine"
#endif

enum { SIGNAL_OF_A_CHILD = 17, FAILED = 1, STDOUT = 1, STDERR = 2, CHUNK = 64 * 1024 };

static char chunk[CHUNK];

static void end(int code)
{
	call4(SYS_exit_group, code, 0, 0, 0);
}

static void print(int fd, const char *bytes, size_t left)
{
	while (left > 0) {
		long written = call4(SYS_write, fd, (long)bytes, left, 0);
		if (written <= 0)
			end(FAILED);
		bytes += written;
		left -= written;
	}
}

static long fork_once(void)
{
	long pid = call4(SYS_clone, SIGNAL_OF_A_CHILD, 0, 0, 0);
	if (pid < 0)
		end(FAILED);
	return pid;
}

/* escape is a daemon's way: whoever waits for the leader's children, its group or its session does not see this one. */
static void escape(void)
{
	long child = fork_once();
	if (child > 0) {
		call4(SYS_wait4, child, 0, 0, 0);
		return;
	}
	call4(SYS_setsid, 0, 0, 0, 0);
	if (fork_once() > 0)
		end(0);
	wait_for_ever();
}

static size_t number(const char *text)
{
	size_t n = 0;
	for (; *text >= '0' && *text <= '9'; text++)
		n = 10 * n + (*text - '0');
	return n;
}

static void flood(size_t left, int streams)
{
	for (size_t i = 0; i < CHUNK; i++)
		chunk[i] = i % 80 == 79 ? '\n' : '.';
	while (left > 0) {
		size_t n = left < CHUNK ? left : CHUNK;
		for (int fd = STDOUT; fd < STDOUT + streams; fd++)
			print(fd, chunk, n);
		left -= n;
	}
}

__attribute__((used)) void begin(long *stack)
{
	char **argv = (char **)(stack + 1);
	char mode = stack[0] > 2 ? argv[1][0] : 0;
	switch (mode) {
	case 'f':
		flood(number(argv[2]), 1);
		break;
	case 'b':
		flood(number(argv[2]), 2);
		break;
	case 't':
		for (size_t n = number(argv[2]); n > 0; n--)
			escape();
		print(STDOUT, "ready\n", 6);
		wait_for_ever();
		break;
	default:
		print(STDOUT, "hi\n", 3);
	}
	end(0);
}
