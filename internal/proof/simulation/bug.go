package simulation

// bug is a rule of the protocol that is broken on purpose, to show that the
// checker and the contract notice.
type bug string

const (
	noBug            bug = ""
	noToken          bug = "outcomes are fenced on the attempt's number alone"
	noFence          bug = "outcomes are not fenced at all"
	ignoresLease     bug = "a claim does not ask whether the worker's lease stands"
	ignoresSlots     bug = "a run that waits for a slot is claimed as any other"
	claimsRunning    bug = "a claim takes what runs elsewhere"
	sameAttempt      bug = "a claim does not count the attempt"
	countsBeforeLock bug = "slots are counted in the statement that waits for the lock"
	successWins      bug = "a success beats a requested end"
	needsWorkerRow   bug = "what runs on is unknown is not reassigned"
	givesBackClaims  bug = "a worker gives back what it is just claiming"
	countsFromAnswer bug = "a run's time counts from the answer to its claim alone"
	ignoresTypeLimit bug = "a claim does not ask how many of a type the tenant may run"
	anothersCount    bug = "a claim counts what another tenant runs"
	crossesTenants   bug = "a job is found by its id alone, for every tenant"
	keysCross        bug = "a key keeps out other tenants' runs"
	claimsAnyType    bug = "a claim does not ask what the worker runs"
	ignoresLimit     bug = "a claim does not ask how many the tenant may run"
	keepsKeys        bug = "the end of a run does not free its key"
	noSkipLocked     bug = "a promoter takes a job that another one holds"
	advancesOnly     bug = "a promotion advances without inserting"
	insertsOnly      bug = "a promotion inserts without advancing"
	deletesOnly      bug = "a deletion leaves the executions alone"
)

// bugs are all of them.
func bugs() []bug {
	return []bug{
		noToken, noFence, ignoresLease, ignoresSlots, claimsRunning, sameAttempt, countsBeforeLock, successWins, needsWorkerRow, givesBackClaims, countsFromAnswer, ignoresLimit, ignoresTypeLimit, anothersCount, crossesTenants, keysCross,
		claimsAnyType, keepsKeys, noSkipLocked,
		advancesOnly, insertsOnly, deletesOnly,
	}
}
