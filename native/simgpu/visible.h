/* Which cards this process sees, in what order. */
#ifndef SIMGPU_VISIBLE_H
#define SIMGPU_VISIBLE_H

#include "store.h"

/* Card numbers by $NVIDIA_VISIBLE_DEVICES (what a container is given), then, for CUDA, by $CUDA_VISIBLE_DEVICES. */
int visible_cards(const struct node *node, bool for_cuda, int *cards);
void uuid_text(const struct card_spec *spec, char text[48]);

#endif
