/* SPDX-License-Identifier: Apache-2.0 */
/* What `terse doctor` can see of a host without MPI. */
#ifndef TS_CLI_DOCTOR_HOST_H
#define TS_CLI_DOCTOR_HOST_H

#include "common/cli/doctor_report.h"

/* included: btl_tcp_if_include as it is set, "" or NULL when it is not. */
void ts_doctor_host(ts_doctor_report *report, const char *included);
/* What a launch from here needs: mpirun, ompi-server, configs/openmpi.conf, root's variables. */
void ts_doctor_launch(ts_doctor_report *report);

#endif
