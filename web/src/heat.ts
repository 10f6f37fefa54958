// How much there is in a cell, as one of six shades; the cell shows the number too.

/** From 0 (nothing) to 5 (as much as the most). */
export const shade = (count: number, most: number): string => `heat${count === 0 ? 0 : Math.min(5, 1 + Math.floor(4.999 * Math.sqrt(count / Math.max(1, most))))}`;

/** `980`, `1.2k`, `3M`: a number in few signs. */
export function brief(count: number): string {
  if (count < 1000) return String(count);
  const [value, unit] = count < 1_000_000 ? [count / 1000, 'k'] : [count / 1_000_000, 'M'];
  return `${value < 10 ? Math.floor(value * 10) / 10 : Math.floor(value)}${unit}`;
}
