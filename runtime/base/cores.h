/* How many cores this process may use: those of its affinity mask, no more than the CPU time of its control groups
 * is worth. */
#ifndef RT_BASE_CORES_H
#define RT_BASE_CORES_H

/* At least 1. */
int rt_cores(void);

/* The cores that control groups allow, rounded down to at least 1; 0: they set no limit. `groups` is a file like
 * /proc/self/cgroup, `root` where control groups are mounted, /sys/fs/cgroup (cgroups(7)). Of version 2 the least
 * cpu.max of the group and those it is in, of version 1 cpu.cfs_quota_us. */
int rt_cores_allowed(const char *groups, const char *root);

#endif
