/* convert.h - float16 and bfloat16 to float32 and back, in plain integer arithmetic. */
#ifndef CONVERT_H
#define CONVERT_H

#include <stdint.h>

float f32_of_f16(uint16_t half); /* exact */
float f32_of_bf16(uint16_t half);
uint16_t f16_of_f32(float value); /* to nearest, ties to even; too large: inf; NaN stays NaN */
uint16_t bf16_of_f32(float value);

#endif
