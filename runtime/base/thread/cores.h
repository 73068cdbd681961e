/* How many cores this process may use: the size of its CPU affinity mask, limited by the CPU quotas of its control
 * groups. */
#ifndef RT_BASE_CORES_H
#define RT_BASE_CORES_H

/* Number of cores, at least 1. */
int rt_cores(void);

/* CPU quota of the process' control groups in cores, rounded down to at least 1; 0: no limit. Version 2: the least
 * cpu.max of the group and its ancestors; version 1: cpu.cfs_quota_us. groups: a file in the format of
 * /proc/self/cgroup; root: the mount point, /sys/fs/cgroup (cgroups(7)). */
int rt_cores_allowed(const char *groups, const char *root);

#endif
