/* SHA-512 and Ed25519 by libcrypto. */

#include <openssl/evp.h>

#include "npuflow_openssl.h"

static npuflow_status sha512(void *context, const void *bytes, size_t size, uint8_t digest[64])
{
    (void)context;
    return EVP_Digest(bytes, size, digest, NULL, EVP_sha512(), NULL) == 1 ? NPUFLOW_OK : NPUFLOW_SEAL;
}

static npuflow_status ed25519(void *context, const uint8_t key[32], const uint8_t signature[64],
    const void *bytes, size_t size)
{
    EVP_PKEY *own = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, key, 32);
    EVP_MD_CTX *check = EVP_MD_CTX_new();
    const int fits = own && check && EVP_DigestVerifyInit(check, NULL, NULL, NULL, own) == 1
        && EVP_DigestVerify(check, signature, 64, (const unsigned char *)bytes, size) == 1;
    (void)context;
    EVP_MD_CTX_free(check);
    EVP_PKEY_free(own);
    return fits ? NPUFLOW_OK : NPUFLOW_SEAL;
}

const npuflow_crypto npuflow_openssl = {NULL, sha512, ed25519};
