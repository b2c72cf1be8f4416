/* What seals are checked with where OpenSSL (1.1.1 or newer) is: options.crypto = &npuflow_openssl. */

#ifndef NPUFLOW_OPENSSL_H
#define NPUFLOW_OPENSSL_H

#include "npuflow.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const npuflow_crypto npuflow_openssl;

#ifdef __cplusplus
}
#endif

#endif
