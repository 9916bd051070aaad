// The gate's last step, which tests look at on its own.      spec 3.9 (d)
#pragma once

namespace hadal::reference {

// sigma( copysign( sqrt( max(|dot|, 1e-6) ), dot ) )
double engram_gate(double dot);

}  // namespace hadal::reference
