/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * wire_device.h - a hostile device and a clock, both inside this process
 *
 * The runtime under test has one thread. Each time it would wait or look at
 * the clock, the device does what the input says: so every interleaving at
 * such a point is a case that can be had again. The time is made up.
 */
#ifndef FUZZ_WIRE_DEVICE_H
#define FUZZ_WIRE_DEVICE_H

#include <stdbool.h>

#include "../../devices/sgpu/runtime/runtime.h"
#include "input.h"

/**
 * struct device - the one device of a case
 * @in: decides what it does
 * @gpu: NULL while it is being opened
 * @now: the time, in nanoseconds
 * @alive: its process is there
 * @killed: and will not be for long
 * @monitor: the runtime's monitor thread, run when the process has ended
 * @monitor_arg: its argument; the GPU
 * @in_monitor: it runs
 * @stopped: another thread has called sgpu_hw_fault_stop()
 */
struct device {
	struct input *in;
	struct sgpu *gpu;
	uint64_t now;
	bool alive;
	bool killed;
	void *(*monitor)(void *);
	void *monitor_arg;
	bool in_monitor;
	bool stopped;
};

extern struct device device;

#endif /* FUZZ_WIRE_DEVICE_H */
