-- Closes the tables on Supabase, and leaves workers the functions of `tasks`. To be run by the owner of the tables, again
-- after each upgrade; harmless to repeat.

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'herdsman_worker') THEN
        CREATE ROLE herdsman_worker NOLOGIN;
    END IF;
END $$;
-- Whoever may add a function here could put one in the way of ours.
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO herdsman_worker;

-- FORCE binds the owner as well, so the owner needs the one policy that there is.
DO $$ DECLARE closed text; BEGIN
    FOREACH closed IN ARRAY ARRAY[{each_table}] LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', closed);
        EXECUTE format('ALTER TABLE %s FORCE ROW LEVEL SECURITY', closed);
        EXECUTE format('DROP POLICY IF EXISTS herdsman_control ON %s', closed);
        EXECUTE format('CREATE POLICY herdsman_control ON %s TO %s USING (true) WITH CHECK (true)', closed, {control});
    END LOOP;
END $$;

-- A view shows a reader what that reader may see in the tables.
DO $$ DECLARE shown text; BEGIN
    FOREACH shown IN ARRAY ARRAY[{each_view}] LOOP
        EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', shown);
    END LOOP;
END $$;

-- Supabase gives `anon` and `authenticated` rights on everything new; elsewhere they may not exist.
DO $$ DECLARE outsider text; BEGIN
    FOR outsider IN
        SELECT 'PUBLIC' UNION ALL SELECT rolname FROM pg_roles
        WHERE rolname IN ('herdsman_worker', 'anon', 'authenticated')
    LOOP
        EXECUTE format('REVOKE ALL ON TABLE %s FROM %s', {relations}, outsider);
        EXECUTE format('REVOKE ALL ON SEQUENCE %s FROM %s', {sequences}, outsider);
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', {functions}, outsider);
    END LOOP;
END $$;

GRANT EXECUTE ON FUNCTION {worker_functions} TO herdsman_worker;
-- The gateway switches to the role that a token names; the key of the service may call everything.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'authenticator') THEN
        GRANT herdsman_worker TO authenticator;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'service_role') THEN
        GRANT EXECUTE ON FUNCTION {public_functions} TO service_role;
    END IF;
END $$;
NOTIFY pgrst, 'reload schema';
