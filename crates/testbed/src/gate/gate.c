/* Runs a program whose changes to the file system are asked for one by one.
 *
 *   gate SOCKET PROGRAM [ARGUMENT...]
 *
 * The kernel stops each such system call of the program and of its children (seccomp's user notification) and tells a
 * second process, which passes it on to SOCKET as a line, `id pid call path path`, with tabs between, and waits for the
 * verdict, a line `id number`: 0 lets the call go on, anything else is the error that it fails with. No verdict, no
 * return: that is a call that hangs. Without somebody at SOCKET everything goes on. The program keeps the process id. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_SIZE 4096

/* Which arguments are paths, and which folder a relative one is meant from; -1 is none. */
struct call {
	int number;
	const char *name;
	int path, folder, second, second_folder;
};

static const struct call calls[] = {
#ifdef __NR_mkdir
	{ __NR_mkdir, "mkdir", 0, -1, -1, -1 },
	{ __NR_rmdir, "rmdir", 0, -1, -1, -1 },
	{ __NR_unlink, "unlink", 0, -1, -1, -1 },
	{ __NR_rename, "rename", 0, -1, 1, -1 },
	{ __NR_symlink, "symlink", 1, -1, 0, -1 },
	{ __NR_chmod, "chmod", 0, -1, -1, -1 },
	{ __NR_lchown, "chown", 0, -1, -1, -1 },
	{ __NR_chown, "chown", 0, -1, -1, -1 },
	{ __NR_renameat, "rename", 1, 0, 3, 2 },
#endif
	{ __NR_mkdirat, "mkdir", 1, 0, -1, -1 },
	{ __NR_unlinkat, "unlink", 1, 0, -1, -1 },
	{ __NR_renameat2, "rename", 1, 0, 3, 2 },
	{ __NR_symlinkat, "symlink", 2, 1, 0, -1 },
	{ __NR_fchmodat, "chmod", 1, 0, -1, -1 },
	{ __NR_fchownat, "chown", 1, 0, -1, -1 },
	{ __NR_mount, "mount", 1, -1, 0, -1 },
	{ __NR_umount2, "umount", 0, -1, -1, -1 },
	{ __NR_openat, "create", 1, 0, -1, -1 },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void fail(const char *what)
{
	fprintf(stderr, "gate: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int install(void)
{
	struct sock_filter filter[2 * CALLS + 8];
	size_t n = 0;
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CALLS; i++) {
		if (calls[i].number == __NR_openat)
			continue;
		filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1);
		filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	}
	/* Of the files that are opened, those that may be made by it. */
	filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_openat, 0, 3);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]));
	filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_CREAT, 0, 1);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { .len = (unsigned short)n, .filter = filter };
	int listener = (int)syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (listener < 0)
		fail("seccomp");
	return listener;
}

static void send_listener(int via, int listener)
{
	char byte = 0, space[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &listener, sizeof(int));
	if (sendmsg(via, &message, 0) != 1)
		fail("sendmsg");
}

static int receive_listener(int via)
{
	char byte, space[CMSG_SPACE(sizeof(int))];
	struct iovec data = { &byte, 1 };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof(space) };
	if (recvmsg(via, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		exit(1);
	int listener;
	memcpy(&listener, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	return listener;
}

/* A text of the caller. Each page is read for itself: the one after the text may not be there. */
static void read_text(int memory, unsigned long long at, char *text)
{
	size_t have = 0;
	while (have < PATH_SIZE - 1) {
		size_t step = 4096 - (size_t)((at + have) & 4095);
		if (step > PATH_SIZE - 1 - have)
			step = PATH_SIZE - 1 - have;
		ssize_t got = pread(memory, text + have, step, (off_t)(at + have));
		if (got <= 0)
			break;
		if (memchr(text + have, 0, (size_t)got))
			return;
		have += (size_t)got;
	}
	text[have] = 0;
}

static void whole_path(const struct seccomp_notif *asked, int memory, int argument, int folder, char *path)
{
	char name[64], base[PATH_SIZE] = "", text[PATH_SIZE] = "";
	read_text(memory, asked->data.args[argument], text);
	int handle = folder < 0 ? AT_FDCWD : (int)asked->data.args[folder];
	if (text[0] != '/' && handle != AT_FDCWD) {
		snprintf(name, sizeof(name), "/proc/%d/fd/%d", asked->pid, handle);
		ssize_t size = readlink(name, base, sizeof(base) - 1);
		base[size < 0 ? 0 : size] = 0;
		strncat(base, "/", sizeof(base) - strlen(base) - 1);
	}
	snprintf(path, 2 * PATH_SIZE, "%s%s", base, text);
}

static void tell(int control, const struct seccomp_notif *asked)
{
	static char first[2 * PATH_SIZE], second[2 * PATH_SIZE], line[5 * PATH_SIZE];
	const struct call *call = calls;
	while (call->number != asked->data.nr)
		call++;
	char name[64];
	snprintf(name, sizeof(name), "/proc/%d/mem", asked->pid);
	int memory = open(name, O_RDONLY | O_CLOEXEC);
	first[0] = second[0] = 0;
	if (memory >= 0) {
		whole_path(asked, memory, call->path, call->folder, first);
		if (call->second >= 0)
			whole_path(asked, memory, call->second, call->second_folder, second);
		close(memory);
	}
	for (char *c = first; *c; c++)
		*c = *c == '\n' || *c == '\t' ? '?' : *c;
	for (char *c = second; *c; c++)
		*c = *c == '\n' || *c == '\t' ? '?' : *c;
	int size = snprintf(line, sizeof(line), "%llu\t%d\t%s\t%s\t%s\n", asked->id, asked->pid, call->name, first, second);
	if (write(control, line, (size_t)size) != size)
		exit(1);
}

static void answer(int listener, unsigned long long id, int error)
{
	struct seccomp_notif_resp verdict = { .id = id };
	if (error)
		verdict.error = -error;
	else
		verdict.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	/* The caller may be dead by now. */
	ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &verdict);
}

static void supervise(int listener, const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof(address.sun_path))
		exit(1);
	strcpy(address.sun_path, path);
	int control = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (control >= 0 && connect(control, (struct sockaddr *)&address, sizeof(address)) != 0) {
		close(control);
		control = -1;
	}
	static char lines[4096];
	size_t have = 0;
	for (;;) {
		struct pollfd both[2] = { { listener, POLLIN, 0 }, { control, POLLIN, 0 } };
		if (poll(both, 2, -1) < 0 && errno != EINTR)
			exit(1);
		if (both[0].revents & POLLIN) {
			struct seccomp_notif asked;
			memset(&asked, 0, sizeof(asked));
			if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) == 0) {
				if (control >= 0)
					tell(control, &asked);
				else
					answer(listener, asked.id, 0);
			}
		} else if (both[0].revents) {
			exit(0); /* the last of them has ended */
		}
		if (control >= 0 && both[1].revents) {
			ssize_t got = read(control, lines + have, sizeof(lines) - 1 - have);
			if (got <= 0)
				exit(0); /* calls that wait fail as if the kernel did not know them */
			have += (size_t)got;
			lines[have] = 0;
			char *from = lines, *end;
			while ((end = strchr(from, '\n'))) {
				unsigned long long id;
				int error;
				if (sscanf(from, "%llu %d", &id, &error) == 2)
					answer(listener, id, error);
				from = end + 1;
			}
			have -= (size_t)(from - lines);
			memmove(lines, from, have);
		}
	}
}

int main(int count, char **words)
{
	int pair[2];
	if (count < 3) {
		fprintf(stderr, "usage: gate SOCKET PROGRAM [ARGUMENT...]\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		fail("socketpair");
	/* Twice, so that the program has no child that it does not know of. */
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		if (fork() != 0)
			_exit(0);
		close(pair[0]);
		supervise(receive_listener(pair[1]), words[1]);
	}
	waitpid(child, NULL, 0);
	close(pair[1]);
	send_listener(pair[0], install());
	close(pair[0]);
	signal(SIGPIPE, SIG_DFL);
	execvp(words[2], words + 2);
	fail(words[2]);
}
