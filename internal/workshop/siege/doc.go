// Package siege measures what attackers from outside cost a sale: a steady crowd buys at half of what the service
// can do, one attacker at a time does the worst it can, and a table compares the sale before, during and after. A flood of each
// route that writes is compared with a flood of readings.
// `make siege` runs it whole; `make faults PART=siege` runs a short version that checks what needs no quiet machine.
package siege
