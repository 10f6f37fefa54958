// A long list of which only the rows in sight exist. It asks for the next page when
// its end comes near.

import { useVirtualizer } from '@tanstack/react-virtual';
import { useEffect, useRef, useSyncExternalStore, type KeyboardEvent, type ReactNode } from 'react';

interface Props<T> {
  label: string;
  className: string;
  items: T[];
  keyOf: (item: T) => string;
  head: ReactNode;
  row: (item: T) => ReactNode;
  /** Asks for the next page; absent where there is none, or one is under way. */
  more?: (() => void) | undefined;
  /** Is told which rows are in sight. */
  onSight?: ((keys: string[]) => void) | undefined;
}

export function List<T>({ label, className, items, keyOf, head, row, more, onSight }: Props<T>) {
  const ref = useRef<HTMLDivElement>(null);
  const narrow = useNarrow();
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => ref.current,
    estimateSize: () => (narrow ? 56 : 40),
    overscan: 10,
    getItemKey: (index) => keyOf(items[index]!),
  });
  useEffect(() => rows.measure(), [narrow]);
  const shown = rows.getVirtualItems();
  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (more && last >= items.length - 20) more();
  }, [more, last, items.length]);
  const range = `${rows.range?.startIndex} ${rows.range?.endIndex}`;
  const inSight = items.slice(rows.range?.startIndex ?? 0, (rows.range?.endIndex ?? -1) + 1).map(keyOf);
  useEffect(() => onSight?.(inSight), [onSight, range, inSight[0], inSight.length]);
  return (
    <div ref={ref} className={`list ${className}`} role="table" aria-label={label} aria-rowcount={more ? -1 : items.length + 1} onKeyDown={moveFocus}>
      <div role="rowgroup">
        <div role="row" className="head" aria-rowindex={1}>{head}</div>
      </div>
      <div role="rowgroup" style={{ height: rows.getTotalSize() }}>
        {shown.map((one) => (
          <div key={one.key} role="row" className="inside" aria-rowindex={one.index + 2} style={{ transform: `translateY(${one.start}px)` }}>
            {row(items[one.index]!)}
          </div>
        ))}
      </div>
    </div>
  );
}

const phone = matchMedia('(max-width: 720px)');

function onPhone(listener: () => void): () => void {
  phone.addEventListener('change', listener);
  return () => phone.removeEventListener('change', listener);
}

/** Whether rows are as high as on a phone, see style.css. */
export const useNarrow = (): boolean => useSyncExternalStore(onPhone, () => phone.matches);

/** Arrows move from row to row, in the same column. */
function moveFocus(event: KeyboardEvent<HTMLElement>): void {
  if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
  const row = (event.target as HTMLElement).closest('.inside');
  if (!row) return;
  const column = [...row.querySelectorAll('a, input, button')].indexOf(event.target as HTMLElement);
  const index = Number(row.getAttribute('aria-rowindex')) + (event.key === 'ArrowDown' ? 1 : -1);
  const next = event.currentTarget.querySelector(`.inside[aria-rowindex="${index}"]`);
  const target = next?.querySelectorAll<HTMLElement>('a, input, button')[Math.max(0, column)];
  if (!target) return;
  event.preventDefault();
  target.focus();
}
