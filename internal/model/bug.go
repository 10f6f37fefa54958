package model

// bug is a rule of the protocol that is broken on purpose, to show that the
// checker and the contract notice.
type bug int

const (
	noBug            bug = iota
	noToken              // outcomes are fenced on the attempt's number alone
	noAttempt            // outcomes are not fenced at all
	ignoresLease         // a claim does not ask whether the worker's lease stands
	ignoresGate          // a run that waits for a place is claimed as any other
	claimsRunning        // a claim takes what runs elsewhere
	countsBeforeLock     // places are counted in the statement that waits for the lock
	successWins          // a success beats a requested end
	noSkipLocked         // a promoter takes a job that another one holds
	advancesOnly         // a promotion advances without inserting
	insertsOnly          // a promotion inserts without advancing
	insertsEnded         // a run is inserted although the history has it
	deletesOnly          // a deletion leaves the executions alone
)
