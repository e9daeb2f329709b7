/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes: one list for the library, the daemon and the wire.
 *
 * Values are pinned and append-only: they travel in frames and are part of
 * the library's ABI. Public header, installed beside terse.h.
 */
#ifndef TERSE_STATUS_H
#define TERSE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, value, sentence) */
#define TERSE_STATUS_LIST(X)                                                    \
    X(OK, 0, "success")                                                         \
    X(EINVAL, 1, "an argument is outside what the function allows")             \
    X(ENOMEM, 2, "out of memory")                                               \
    X(EIO, 3, "an input or output operation failed")                            \
    X(ECONFIG, 4, "the configuration is not valid")                             \
    X(ECORRUPT, 5, "data from outside is malformed or fails its checksum")      \
    X(ELIMIT, 6, "a size or count exceeds the configured limit")                \
    X(ETIMEDOUT, 7, "the deadline passed")                                      \
    X(EMISMATCH, 8, "the peers do not agree on the contract")                   \
    X(EVERSION, 9, "the peer speaks another version of the protocol")           \
    X(ESTATE, 10, "the call is not allowed in this state")                      \
    X(EPEER, 11, "a peer is gone or refused the request")                       \
    X(ENONFINITE, 12, "NaN or infinity where values must be finite")            \
    X(ENOTFOUND, 13, "no such name")                                            \
    X(ENOSPACE, 14, "the output buffer is too small")                           \
    X(EAGAIN, 15, "nothing to do yet; try again")                               \
    X(EUNSUPPORTED, 16, "not available in this build or on this machine")       \
    X(EDUPLICATE, 17, "already accepted; harmless")                             \
    X(ESTALE, 18, "too old to be accepted")                                     \
    X(ESHUTDOWN, 19, "the job is ending")                                       \
    X(EDENIED, 20, "the shared secret is missing or wrong")

typedef enum terse_status {
#define TERSE_STATUS_ENUM(name, value, sentence) TERSE_##name = (value),
    TERSE_STATUS_LIST(TERSE_STATUS_ENUM)
#undef TERSE_STATUS_ENUM
} terse_status;

#if defined(__GNUC__) || defined(__clang__)
#define TERSE_NODISCARD __attribute__((warn_unused_result))
#define TERSE_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define TERSE_API __attribute__((visibility("default")))
#else
#define TERSE_NODISCARD
#define TERSE_PRINTF(fmt, args)
#define TERSE_API
#endif

/* One sentence for a status. Thread: any. Returns: a constant string. */
TERSE_API const char *terse_strerror(terse_status status);

/* The name of a status, as "ECORRUPT". Thread: any. Returns: a constant string. */
TERSE_API const char *terse_status_name(terse_status status);

#ifdef __cplusplus
}
#endif
#endif
