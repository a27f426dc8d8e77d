// Includes doctest. Include this last: doctest has a CHECK of its own, which in tests replaces that of base/check.h.
#pragma once

#include "base/check.h"
#undef CHECK
#include <doctest/doctest.h>
