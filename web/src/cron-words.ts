// A cron expression in words.

import cronstrue from 'cronstrue';

/** An expression as a sentence; null where the library cannot read it: the API decides whether it is valid. */
export function cronInWords(expression: string): string | null {
  try {
    return cronstrue.toString(expression, { use24HourTimeFormat: true, verbose: true });
  } catch {
    return null;
  }
}
