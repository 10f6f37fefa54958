// A filter that somebody types.

/** A field that counts once it is left, or Enter is pressed. */
export function Typed({ label, value, set, known }: { label: string; value: string | undefined; set: (value: string | undefined) => void; known: string[] }) {
  return (
    <label>{label}
      <input key={value ?? ''} defaultValue={value ?? ''} size={10} maxLength={50} list={`known-${label}`}
        onBlur={(event) => event.target.value !== (value ?? '') && set(event.target.value || undefined)}
        onKeyDown={(event) => event.key === 'Enter' && set(event.currentTarget.value || undefined)} />
      <datalist id={`known-${label}`}>{known.map((one) => <option key={one} value={one} />)}</datalist>
    </label>
  );
}
