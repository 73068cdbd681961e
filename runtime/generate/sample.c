#include "generate/sample.h"

#include "base/number/philox.h"

#include <math.h>

void rt_sample_penalise(float *scores, int64_t vocabulary, const uint64_t *seen, double penalty) {
    const float factor = (float)penalty;
    if (factor == 1) return;
    for (int64_t i = 0; i < vocabulary; i++)
        if (seen[i / 64] >> i % 64 & 1) scores[i] = scores[i] < 0 ? scores[i] * factor : scores[i] / factor;
}

/* The id of the greatest score; -1: one is NaN, or all are -INFINITY. */
static int64_t greatest(const float *scores, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(scores[i])) return -1;
        if (scores[i] > (best < 0 ? -INFINITY : scores[best])) best = i;
    }
    return best;
}

static void swap(float *a, float *b) {
    const float kept = *a;
    *a = *b;
    *b = kept;
}

/* The k-th greatest of n scores, which it reorders (Hoare's quickselect); 1 <= k <= n. */
static float select_kth(float *scores, int64_t n, int64_t k) {
    int64_t first = 0, last = n - 1;
    while (first < last) {
        const float pivot = scores[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (scores[i] > pivot) i++;
            while (scores[j] < pivot) j--;
            if (i <= j) swap(&scores[i++], &scores[j--]);
        }
        if (k - 1 <= j)
            last = j;
        else if (k - 1 >= i)
            first = i;
        else
            break;
    }
    return scores[k - 1];
}

static void drop_below(float *scores, int64_t n, float least) {
    for (int64_t i = 0; i < n; i++)
        if (scores[i] < least) scores[i] = -INFINITY;
}

static void keep_top_k(float *scores, float *scratch, int64_t n, int64_t k) {
    if (k <= 0 || k >= n) return;
    for (int64_t i = 0; i < n; i++) scratch[i] = scores[i];
    drop_below(scores, n, select_kth(scratch, n, k));
}

/* A heap of scores, the greatest first. */
static void sink(float *heap, int64_t n, int64_t i) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child]) child++;
        if (heap[child] <= heap[i]) return;
        swap(&heap[child], &heap[i]);
    }
}

static double sum_of(const float *scores, int64_t n, float most) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] > -INFINITY) sum += exp((double)scores[i] - most);
    return sum;
}

/* Of scores that equal `last`, keeps the `most` lowest ids. */
static void keep_equal(float *scores, int64_t n, float last, int64_t most) {
    for (int64_t i = 0; i < n; i++)
        if (scores[i] == last && most-- <= 0) scores[i] = -INFINITY;
}

/* A token is kept while the probabilities of those before it, from the greatest on, add up to less than p. */
static void keep_top_p(float *scores, float *heap, int64_t n, double p, float most) {
    int64_t left = 0, equal = 0;
    if (p >= 1) return;
    for (int64_t i = 0; i < n; i++)
        if (scores[i] > -INFINITY) heap[left++] = scores[i];
    for (int64_t i = left / 2; i-- > 0;) sink(heap, left, i);
    const double enough = p * sum_of(scores, n, most);
    float last = most;
    for (double sum = 0; left > 0 && (sum < enough || !equal); left--) {
        equal = equal && heap[0] == last ? equal + 1 : 1;
        last = heap[0];
        sum += exp((double)last - most);
        heap[0] = heap[left - 1];
        sink(heap, left - 1, 0);
    }
    drop_below(scores, n, last);
    keep_equal(scores, n, last, equal);
}

static void keep_min_p(float *scores, int64_t n, double p, float most) {
    for (int64_t i = 0; i < n && p > 0; i++)
        if (exp((double)scores[i] - most) < p) scores[i] = -INFINITY;
}

/* The first token, by id, at which the sum of probabilities exceeds the drawn number. */
static int64_t draw(const float *scores, int64_t n, float most, double number) {
    const double wanted = number * sum_of(scores, n, most);
    double sum = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        if (!(scores[i] > -INFINITY)) continue;
        sum += exp((double)scores[i] - most);
        last = i;
        if (sum > wanted) break;
    }
    return last;
}

int64_t rt_sample(const struct rt_sampling *sampling, float *scores, float *scratch, int64_t vocabulary, uint64_t row,
                  uint64_t position) {
    const float temperature = (float)sampling->temperature;
    const int64_t best = greatest(scores, vocabulary);
    if (best < 0 || !(temperature > 0) || isinf(scores[best])) return best;
    for (int64_t i = 0; i < vocabulary; i++) scores[i] /= temperature;
    const float most = scores[best];
    if (isinf(most)) return best;
    keep_top_k(scores, scratch, vocabulary, sampling->top_k);
    keep_top_p(scores, scratch, vocabulary, sampling->top_p, most);
    keep_min_p(scores, vocabulary, sampling->min_p, most);
    const struct rt_philox bits = rt_philox_at(position, row, sampling->seed);
    return draw(scores, vocabulary, most, rt_philox_open(bits.word[0], bits.word[1]));
}
