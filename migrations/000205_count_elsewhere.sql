-- Nobody writes numbers into the old rows any more.

-- +goose Up
-- Polls of processes of the version before pass over a tenant by the old numbers, which
-- their reconciling would write now and then: they stay zero, and claims decide.
-- +goose StatementBegin
CREATE FUNCTION count_elsewhere() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    NEW.running := 0;
    NEW.running_by_type := '{}';
    RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER count_elsewhere BEFORE UPDATE ON running_counts FOR EACH ROW
    WHEN (NEW.running <> 0 OR NEW.running_by_type <> '{}') EXECUTE FUNCTION count_elsewhere();

-- +goose Down
DROP TRIGGER count_elsewhere ON running_counts;
DROP FUNCTION count_elsewhere();
