// Everything: include this one to describe, differentiate, compile and run graphs from C++.
#pragma once

#include "topstitch/attribute.h"
#include "topstitch/autodiff.h"
#include "topstitch/control.h"
#include "topstitch/device.h"
#include "topstitch/dtype.h"
#include "topstitch/error.h"
#include "topstitch/executable.h"
#include "topstitch/graph.h"
#include "topstitch/ndarray.h"
#include "topstitch/ops.h"
#include "topstitch/profile.h"
#include "topstitch/queue.h"
#include "topstitch/serialize.h"
#include "topstitch/shape.h"
#include "topstitch/version.h"
