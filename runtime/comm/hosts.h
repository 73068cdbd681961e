/* Processes that an MPI launcher has started and that do not run a program yet: rank 0 sends bytes to those of other
 * hosts. All functions but rt_host_name are collective, and are called by one thread. */
#ifndef RT_COMM_HOSTS_H
#define RT_COMM_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#define RT_HOST_VARIABLE "RANKC_HOST" /* environment variable: name of this host, for tests of several on one machine */

enum { RT_HOST_ROOM = 128 };

/* The name of this host: of the machine's current boot and of the container, which have memory of their own. */
void rt_host_name(char host[RT_HOST_ROOM]);

struct rt_hosts;

/* Connects the processes of the launcher: RT_OK, or RT_ERROR_SYSTEM and `why`. */
int rt_hosts_open(struct rt_hosts **out, char *why, size_t room);

/* The rank of this process, and whether it is the lowest of its host and not on rank 0's: such a process receives files
 * for its host. These two are not collective. */
int rt_hosts_rank(const struct rt_hosts *hosts);
bool rt_hosts_receives(const struct rt_hosts *hosts);

/* Returns when rank 0 has called it. The others wait without using a processor. */
int rt_hosts_wait(struct rt_hosts *hosts);

/* Copies rank 0's bytes to all. */
int rt_hosts_broadcast(struct rt_hosts *hosts, void *data, size_t bytes);

/* *first: the value of the lowest rank whose value is not 0, or 0. */
int rt_hosts_first(struct rt_hosts *hosts, int mine, int *first);

/* MPI is finalised when the process exits: no process ends before all have come to that. */
void rt_hosts_close(struct rt_hosts *hosts);

#endif
