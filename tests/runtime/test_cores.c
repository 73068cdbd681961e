/* Limits of control groups, of files as the kernel writes them (cgroups(7), and the kernel's
 * admin-guide/cgroup-v2). */
#define _GNU_SOURCE 1

#include "base/thread/cores.h"
#include "../test.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct tree {
    char root[64], groups[80];
};

static void write_file(const struct tree *tree, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", tree->root, name);
    for (char *slash = path + strlen(tree->root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(path, 0700);
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void plant(struct tree *tree, const char *groups) {
    snprintf(tree->root, sizeof tree->root, "/tmp/rankc-cores-XXXXXX");
    assert_non_null(mkdtemp(tree->root));
    snprintf(tree->groups, sizeof tree->groups, "%s/self", tree->root);
    write_file(tree, "self", groups);
}

static int allowed(const struct tree *tree) {
    char command[128];
    const int cores = rt_cores_allowed(tree->groups, tree->root);
    snprintf(command, sizeof command, "rm -rf %s", tree->root);
    assert_int_equal(system(command), 0);
    return cores;
}

TEST(version_2_takes_the_least_of_the_groups_around) {
    struct tree tree;
    plant(&tree, "0::/user.slice/job\n");
    write_file(&tree, "user.slice/job/cpu.max", "max 100000\n");
    write_file(&tree, "user.slice/cpu.max", "300000 100000\n");
    assert_int_equal(allowed(&tree), 3);
}

TEST(part_of_a_core_is_one) {
    struct tree tree;
    plant(&tree, "0::/job\n");
    write_file(&tree, "job/cpu.max", "50000 100000\n");
    assert_int_equal(allowed(&tree), 1);
}

TEST(more_than_a_core_is_rounded_down) {
    struct tree tree;
    plant(&tree, "0::/job\n");
    write_file(&tree, "job/cpu.max", "250000 100000\n");
    assert_int_equal(allowed(&tree), 2);
}

/* In a container the path may be the host's, of which only the container's own root is mounted. */
TEST(a_container_has_the_limit_of_its_root) {
    struct tree tree;
    plant(&tree, "0::/system.slice/docker-0123.scope\n");
    write_file(&tree, "cpu.max", "400000 100000\n");
    assert_int_equal(allowed(&tree), 4);
}

TEST(version_1_has_a_quota_and_a_period) {
    struct tree tree;
    plant(&tree, "5:memory:/job\n4:cpu,cpuacct:/job\n3:cpuset:/\n");
    write_file(&tree, "cpu,cpuacct/job/cpu.cfs_quota_us", "600000\n");
    write_file(&tree, "cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    write_file(&tree, "memory/job/cpu.cfs_quota_us", "100000\n"); /* of no controller of time */
    write_file(&tree, "memory/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(allowed(&tree), 6);
}

TEST(no_limit_is_none) {
    struct tree tree;
    plant(&tree, "4:cpu:/job\n0::/job\n");
    write_file(&tree, "job/cpu.max", "max 100000\n");
    write_file(&tree, "cpu/job/cpu.cfs_quota_us", "-1\n");
    write_file(&tree, "cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(allowed(&tree), 0);
    plant(&tree, "nonsense\n0::\n:::\n");
    assert_int_equal(allowed(&tree), 0);
    assert_int_equal(rt_cores_allowed("/nowhere/at/all", "/nowhere"), 0);
}

TEST(the_mask_counts) {
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_true(rt_cores() >= 1 && rt_cores() <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(rt_cores(), 1);
    sched_setaffinity(0, sizeof all, &all);
}

int main(void) {
    return run_all_tests("cores", NULL, NULL);
}
