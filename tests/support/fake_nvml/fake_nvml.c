/* A stand-in for libnvidia-ml.so.1: the calls that enginetop makes, on GPUs that a state file describes.
 *
 * The file named by FAKE_NVML_STATE is read anew by every call (once only with -DREAD_ONCE). One fact a line:
 *   init CODE | count N | generation N | wait CODE
 *   gpu I name TEXT | gpu I uuid TEXT | gpu I KEY NUMBER    (util used total power limit temp clock reasons mig lost)
 *   instance I SLOT GI CI USED TOTAL PROFILE
 *   pid I KIND PID                                          (KIND: compute graphics mps)
 *   fail I WHAT CODE                                        (I -1: every GPU; WHAT: a call, or all)
 *   xid SERIAL I CODE GI                                    (delivered once to sets that watched I before it)
 * A new generation is a reloaded driver: handles and event sets of older ones answer 1 (uninitialised).
 * -DOLD_DRIVER leaves out the symbols that older drivers do not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPUS 16
#define SLOTS 8
#define GENERATIONS 4
#define LISTED 64

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10, LOST = 15, BAD_VERSION = 25 };

typedef unsigned long long u64;
typedef struct { int used; unsigned gi, ci; u64 memory_used, memory_total; char profile[32]; } Instance;
typedef struct {
  char name[96], uuid[96];
  u64 util, used, total, power, limit, temp, clock, reasons, mig, lost;
  Instance instances[SLOTS];
} Gpu;
typedef struct { int gpu; char kind[16]; unsigned pid; } Process;
typedef struct { int gpu; char what[32]; int code; } Failure;
typedef struct { int serial, gpu; u64 code; unsigned gi; } Xid;
typedef struct {
  int init, count, generation, wait, processes, failures, xids;
  Gpu gpus[GPUS];
  Process process[LISTED];
  Failure failure[LISTED];
  Xid xid[LISTED];
} State;

static _Thread_local State state; /* the event thread reads the file too */

static void defaults(void) {
  memset(&state, 0, sizeof state);
  state.count = 2;
  for (int i = 0; i < GPUS; i++) {
    Gpu *g = &state.gpus[i];
    snprintf(g->name, sizeof g->name, "NVIDIA H200");
    snprintf(g->uuid, sizeof g->uuid, "GPU-0000000%d", i);
    g->util = 50, g->used = 40ULL << 30, g->total = 141ULL << 30, g->power = 350000, g->limit = 700000, g->temp = 55, g->clock = 1980;
  }
}

static void set_number(Gpu *g, const char *key, u64 value) {
  struct { const char *key; u64 *place; } table[] = {
      {"util", &g->util}, {"used", &g->used}, {"total", &g->total}, {"power", &g->power}, {"limit", &g->limit},
      {"temp", &g->temp}, {"clock", &g->clock}, {"reasons", &g->reasons}, {"mig", &g->mig}, {"lost", &g->lost}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].key, key)) *table[i].place = value;
}

static void take_line(const char *line) {
  char key[32], text[96];
  int i, slot, n;
  u64 value;
  Instance in = {1, 0, 0, 0, 0, ""};
  Process p;
  Failure f;
  Xid x;
  if (sscanf(line, "init %d", &n) == 1) state.init = n;
  else if (sscanf(line, "count %d", &n) == 1) state.count = n > GPUS ? GPUS : n;
  else if (sscanf(line, "generation %d", &n) == 1) state.generation = n % GENERATIONS;
  else if (sscanf(line, "wait %d", &n) == 1) state.wait = n;
  else if (sscanf(line, "instance %d %d %u %u %llu %llu %31s", &i, &slot, &in.gi, &in.ci, &in.memory_used, &in.memory_total, in.profile) == 7 && i >= 0 && i < GPUS && slot >= 0 && slot < SLOTS) state.gpus[i].instances[slot] = in;
  else if (sscanf(line, "pid %d %15s %u", &p.gpu, p.kind, &p.pid) == 3 && state.processes < LISTED) state.process[state.processes++] = p;
  else if (sscanf(line, "fail %d %31s %d", &f.gpu, f.what, &f.code) == 3 && state.failures < LISTED) state.failure[state.failures++] = f;
  else if (sscanf(line, "xid %d %d %llu %u", &x.serial, &x.gpu, &x.code, &x.gi) == 4 && state.xids < LISTED) state.xid[state.xids++] = x;
  else if (sscanf(line, "gpu %d name %95[^\n]", &i, text) == 2 && i >= 0 && i < GPUS) strcpy(state.gpus[i].name, text);
  else if (sscanf(line, "gpu %d uuid %95s", &i, text) == 2 && i >= 0 && i < GPUS) strcpy(state.gpus[i].uuid, text);
  else if (sscanf(line, "gpu %d %31s %llu", &i, key, &value) == 3 && i >= 0 && i < GPUS) set_number(&state.gpus[i], key, value);
}

static void look(void) {
#ifdef READ_ONCE
  static _Thread_local int done = 0;
  if (done++) return;
#endif
  char line[256];
  const char *path = getenv("FAKE_NVML_STATE");
  FILE *file = path ? fopen(path, "r") : NULL;
  defaults();
  if (!file) return;
  while (fgets(line, sizeof line, file)) take_line(line);
  fclose(file);
}

/* Handles are addresses in a table, so that a handle tells its generation, its GPU and its slot (0: the GPU). */
static char handles[GENERATIONS][GPUS][SLOTS + 1];
static int current = -1; /* generation of the open session */
int fake_nvml_sessions = 0, fake_nvml_event_sets = 0;

static int enter(void *handle, const char *what, Gpu **gpu, Instance **instance) {
  look();
  long place = (char *)handle - &handles[0][0][0];
  if (place < 0 || place >= (long)sizeof handles) return INVALID;
  int i = place / (SLOTS + 1) % GPUS, slot = place % (SLOTS + 1);
  if (current != state.generation || place / (SLOTS + 1) / GPUS != state.generation) return UNINITIALIZED;
  *gpu = &state.gpus[i];
  *instance = slot ? &(*gpu)->instances[slot - 1] : NULL;
  if ((*gpu)->lost) return LOST;
  for (int n = 0; n < state.failures; n++) {
    Failure *f = &state.failure[n];
    if ((f->gpu == i || f->gpu == -1) && (!strcmp(f->what, what) || !strcmp(f->what, "all"))) return f->code;
  }
  return OK;
}

#define ENTER(what) Gpu *g; Instance *in; int code = enter(handle, what, &g, &in); (void)in; if (code) return code;
#define GPU_ONLY if (in) return UNSUPPORTED;

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  look();
  if (state.init) return state.init;
  current = state.generation;
  fake_nvml_sessions++;
  return OK;
}
int nvmlShutdown(void) {
  if (fake_nvml_sessions < 1) return UNINITIALIZED;
  fake_nvml_sessions--;
  return OK;
}
const char *nvmlErrorString(int code) { return code == 999 ? "Unknown Error" : "an error of the fake"; }

static int session(void) {
  look();
  return current == state.generation ? OK : UNINITIALIZED;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
  int code = session();
  *count = state.count;
  return code;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  int code = session();
  if (code) return code;
  if (index >= (unsigned)state.count) return INVALID;
  if (state.gpus[index].lost) return LOST;
  *handle = &handles[state.generation][index][0];
  return OK;
}
int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
  ENTER("name")
  snprintf(text, size, in ? "%s MIG %s" : "%s", g->name, in ? in->profile : "");
  return OK;
}
int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
  ENTER("uuid")
  if (in) snprintf(text, size, "MIG-%s-%u-%u", g->uuid, in->gi, in->ci);
  else snprintf(text, size, "%s", g->uuid);
  return OK;
}

typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(void *handle, Utilization *found) {
  ENTER("util")
  if (in || g->mig) return UNSUPPORTED;
  found->gpu = g->util, found->memory = 20;
  return OK;
}

#define RESERVED (512ULL << 20)
typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo(void *handle, Memory *found) { /* folds what is reserved into what is used */
  ENTER("memory")
  found->total = in ? in->memory_total : g->total;
  found->used = (in ? in->memory_used : g->used) + RESERVED;
  found->free = found->total - found->used;
  return OK;
}
#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *found) {
  ENTER("memory")
  if (found->version != (sizeof *found | 2u << 24)) return BAD_VERSION;
  found->total = in ? in->memory_total : g->total;
  found->used = in ? in->memory_used : g->used;
  found->reserved = RESERVED;
  found->free = found->total - found->used - RESERVED;
  return OK;
}
#endif

int nvmlDeviceGetPowerUsage(void *handle, unsigned *value) { ENTER("power") GPU_ONLY *value = g->power; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned *value) { ENTER("limit") GPU_ONLY *value = g->limit; return OK; }
int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *value) { (void)sensor; ENTER("temp") GPU_ONLY *value = g->temp; return OK; }
int nvmlDeviceGetClockInfo(void *handle, int type, unsigned *value) { ENTER("clock") GPU_ONLY *value = type == 1 ? g->clock : 2619; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, u64 *value) { ENTER("reasons") GPU_ONLY *value = g->reasons; return OK; }
#ifndef OLD_DRIVER
typedef struct { unsigned version, sensor; int value; } Temperature;
int nvmlDeviceGetTemperatureV(void *handle, Temperature *found) {
  ENTER("temp") GPU_ONLY
  if (found->version != (sizeof *found | 1u << 24)) return BAD_VERSION;
  found->value = (int)g->temp;
  return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *value) { ENTER("reasons") GPU_ONLY *value = g->reasons; return OK; }

int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *next) { ENTER("mig") GPU_ONLY *now = *next = g->mig; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { ENTER("slots") GPU_ONLY *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned slot, void **found) {
  ENTER("instance") GPU_ONLY
  if (slot >= SLOTS) return INVALID;
  if (!g->mig || !g->instances[slot].used) return NOT_FOUND;
  *found = (char *)handle + slot + 1;
  return OK;
}
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) { ENTER("ids") *id = in ? in->gi : ~0u; return OK; }
int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) { ENTER("ids") *id = in ? in->ci : ~0u; return OK; }
typedef struct { unsigned sms, copy, decoders, encoders, jpeg, ofa, gpu_slices, compute_slices; u64 megabytes; } Attributes;
int nvmlDeviceGetAttributes_v2(void *handle, Attributes *found) {
  ENTER("attributes")
  memset(found, 0, sizeof *found);
  if (!in) return UNSUPPORTED;
  found->gpu_slices = atoi(in->profile), found->compute_slices = found->gpu_slices;
  found->megabytes = in->memory_total >> 20;
  return OK;
}
#endif

typedef struct { unsigned pid; u64 memory; unsigned gi, ci; } Running;
static int running(void *handle, const char *kind, unsigned *count, Running *list) {
  ENTER(kind)
  unsigned found = 0, room = *count;
  for (int n = 0; n < state.processes; n++) {
    Process *p = &state.process[n];
    if (&state.gpus[p->gpu] != g || strcmp(p->kind, kind)) continue;
    if (list && found < room) list[found] = (Running){p->pid, ~0ULL, ~0u, ~0u};
    found++;
  }
  *count = found;
  return found > room ? TOO_SMALL : OK;
}
#ifdef OLD_DRIVER
#define RUNNING(name) name##_v2
#else
#define RUNNING(name) name##_v3
#endif
int RUNNING(nvmlDeviceGetComputeRunningProcesses)(void *handle, unsigned *count, Running *list) { return running(handle, "compute", count, list); }
int RUNNING(nvmlDeviceGetGraphicsRunningProcesses)(void *handle, unsigned *count, Running *list) { return running(handle, "graphics", count, list); }
int RUNNING(nvmlDeviceGetMPSComputeRunningProcesses)(void *handle, unsigned *count, Running *list) { return running(handle, "mps", count, list); }

#define XID_EVENT 8ULL
#define PATIENCE 10 /* milliseconds: a wait may end early, and tests need not wait for its end */
typedef struct { int generation, last; char watched[GPUS]; } EventSet;
typedef struct { void *device; u64 type, data; unsigned gi, ci; } Event;
static int newest(void) {
  int serial = 0;
  for (int n = 0; n < state.xids; n++) if (state.xid[n].serial > serial) serial = state.xid[n].serial;
  return serial;
}
int nvmlEventSetCreate(EventSet **set) {
  int code = session();
  if (code) return code;
  *set = calloc(1, sizeof **set);
  (*set)->generation = state.generation;
  (*set)->last = newest(); /* what happened before nobody is told */
  fake_nvml_event_sets++;
  return OK;
}
int nvmlDeviceRegisterEvents(void *handle, u64 types, EventSet *set) {
  ENTER("events") GPU_ONLY
  if (types != XID_EVENT) return UNSUPPORTED;
  set->watched[g - state.gpus] = 1;
  return OK;
}
int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned milliseconds) {
  for (unsigned waited = 0;; waited += 2) {
    int code = session();
    if (code || set->generation != state.generation) return UNINITIALIZED;
    if (state.wait) return state.wait;
    for (int n = 0; n < state.xids; n++) {
      Xid *x = &state.xid[n];
      if (x->serial <= set->last || x->gpu < 0 || x->gpu >= GPUS || !set->watched[x->gpu]) continue;
      set->last = x->serial;
      *event = (Event){&handles[state.generation][x->gpu][0], XID_EVENT, x->code, x->gi, ~0u};
      return OK;
    }
    if (waited >= milliseconds || waited >= PATIENCE) return TIMEOUT;
    usleep(2000);
  }
}
int nvmlEventSetFree(EventSet *set) {
  free(set);
  fake_nvml_event_sets--;
  return OK;
}
