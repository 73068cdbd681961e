#!/usr/bin/env python3
"""Records the learning rates of transformers' schedules in schedules.json: needs torch and transformers.

    record_schedules.py > schedules.json"""
import json

import torch
from transformers import optimization

RATE, STEPS = 0.25, 24  # cosines rise again behind their end there, and stay here
SCHEDULES = {
    "constant:warmup=5": lambda o: optimization.get_constant_schedule_with_warmup(o, 5),
    "linear:warmup=3,steps=20": lambda o: optimization.get_linear_schedule_with_warmup(o, 3, 20),
    "cosine:warmup=4,steps=24": lambda o: optimization.get_cosine_schedule_with_warmup(o, 4, 24),
    "cosine:warmup=2,steps=25,min=0.1": lambda o: optimization.get_cosine_with_min_lr_schedule_with_warmup(o, 2, 25, min_lr_rate=0.1),
    "wsd:warmup=3,decay=6,steps=20": lambda o: optimization.get_wsd_schedule(o, 3, 6, 20),
    "wsd:warmup=4,decay=7,steps=18,min=0.2": lambda o: optimization.get_wsd_schedule(o, 4, 7, 18, min_lr_ratio=0.2),
    "wsd:decay=20,steps=20": lambda o: optimization.get_wsd_schedule(o, 0, 20, 20),
}


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=RATE)
    schedule, found = make(optimizer), []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


print(json.dumps({name: rates(make) for name, make in SCHEDULES.items()}, indent=0))
