// pMEMCPY's published interface, under the other name that its programs include it by.
#ifndef PMEMCPY_PMEMCPY_H
#define PMEMCPY_PMEMCPY_H

#include "pmemcpy.hpp"

#endif // PMEMCPY_PMEMCPY_H
