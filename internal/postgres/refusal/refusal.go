// Package refusal makes a PostgreSQL refuse chosen rows with a chosen SQLSTATE.
//
// It owns the text of the triggers that do so and the list of the SQLSTATEs that
// repeating a statement cannot mend, one of each class. It refuses to connect to
// anything: tests and the chaos harness run the text as the owner of the schema,
// on databases of their own.
package refusal

import (
	"fmt"
	"strings"
)

// Refusal is a trigger that refuses rows of one table.
type Refusal struct {
	Name  string // of the trigger, a plain word; two refusals of one table have two names
	Table string
	// Event is INSERT, UPDATE or DELETE, or several of them joined by OR; empty
	// means INSERT.
	Event string
	// Rows is the condition under which a row is refused, over NEW, or OLD for
	// DELETE: "NEW.job_id = '…'", "NEW.result ? 'poison'". It holds no subquery.
	// Empty refuses every row.
	Rows     string
	SQLSTATE string // five characters
}

// Begin is the SQL that installs the trigger. Where it is there already it gets
// the new condition and SQLSTATE.
func (r Refusal) Begin() string {
	event, when := r.Event, ""
	if event == "" {
		event = "INSERT"
	}
	if r.Rows != "" {
		when = "WHEN (" + r.Rows + ") "
	}
	return fmt.Sprintf(`CREATE OR REPLACE FUNCTION public.%[1]s() RETURNS trigger LANGUAGE plpgsql AS $refusal$
BEGIN
    RAISE EXCEPTION 'the test refuses this row' USING ERRCODE = %[2]s;
END
$refusal$;
DROP TRIGGER IF EXISTS %[3]s ON public.%[4]s;
CREATE TRIGGER %[3]s BEFORE %[5]s ON public.%[4]s FOR EACH ROW %[6]sEXECUTE FUNCTION public.%[1]s();`,
		r.function(), quoted(r.SQLSTATE), r.Name, r.Table, event, when)
}

// End is the SQL that removes the trigger, if it is there.
func (r Refusal) End() string {
	return fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON public.%s; DROP FUNCTION IF EXISTS public.%s();", r.Name, r.Table, r.function())
}

func (r Refusal) function() string { return "refuse_" + r.Table + "_" + r.Name }

func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// SQLSTATEs are codes that repeating a statement cannot mend: one of each class
// that a trigger, a constraint or a value of a row can raise, and of class 22 and
// 23 those that this schema is most likely to meet.
func SQLSTATEs() []string {
	return []string{
		"09000",                                     // a trigger's action
		"0A000",                                     // not supported
		"0Z002",                                     // stacked diagnostics
		"20000",                                     // no case matches
		"21000",                                     // cardinality
		"22001", "22003", "22021", "22P02", "22P05", // too long, out of range, bytes, text, characters
		"23502", "23503", "23505", "23514", "23P01", // constraints
		"25000", "27000", // transaction state, data changed by a trigger
		"2F000", "34000", "38000", "39000", "3F000", // routines, cursors, schemas
		"40002",          // a constraint at the commit
		"42804",          // a type that does not fit
		"44000",          // WITH CHECK OPTION
		"54000", "54011", // a limit of the program: index row too large, too many columns
		"55000",          // not in the state that it needs
		"P0001", "P0004", // RAISE, ASSERT
		"HV000", // a foreign table
		"ZZ001", // of nobody but the one who raised it
	}
}
