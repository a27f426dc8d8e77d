// What every unit test includes.
#pragma once

#include <doctest/doctest.h>
