// JDBC: IDs first, a batch with keys, and what the driver sends for both.
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

class JdbcTest {
    static final List<String> TITLES = new ArrayList<>();
    static Connection server;

    static Connection connect(boolean rewrite) throws SQLException {
        return DriverManager.getConnection(String.format("jdbc:postgresql://%s:%s/%s?user=%s&reWriteBatchedInserts=%s",
            System.getenv("PGHOST"), System.getenv("PGPORT"), System.getenv("PGDATABASE"), System.getenv("PGUSER"), rewrite));
    }

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
        System.out.println("  " + what + ": " + got);
    }

    static long number(String query) throws SQLException {
        try (Statement statement = server.createStatement(); ResultSet rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getLong(1);
        }
    }

    interface Insert { List<Long> run(Connection connection) throws SQLException; }

    /** Checks how many INSERTs the server gets, and that each title has the ID that is returned in its place. */
    static void check(String what, Insert insert, boolean rewrite, long inserts) throws SQLException {
        try (Statement statement = server.createStatement()) {
            statement.execute("TRUNCATE books");
            statement.execute("SELECT pg_stat_statements_reset()");
        }
        List<Long> ids;
        try (Connection connection = connect(rewrite)) {
            ids = insert.run(connection);
        }
        same(number("SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE 'INSERT%'"), inserts, what + ": INSERTs");
        Map<String, Long> stored = new HashMap<>();
        try (Statement statement = server.createStatement(); ResultSet rows = statement.executeQuery("SELECT title, id FROM books")) {
            while (rows.next()) stored.put(rows.getString(1), rows.getLong(2));
        }
        same(stored.size(), TITLES.size(), what + ": rows");
        List<Long> expected = new ArrayList<>();
        for (String title : TITLES) expected.add(stored.get(title));
        same(ids.equals(expected), true, what + ": right IDs, in order");
    }

    static List<Long> withKeys(PreparedStatement insert) throws SQLException {
        List<Long> ids = new ArrayList<>();
        for (String title : TITLES) {
            insert.setString(1, title);
            insert.addBatch();
        }
        insert.executeBatch();
        try (ResultSet keys = insert.getGeneratedKeys()) {
            while (keys.next()) ids.add(keys.getLong("id"));
        }
        return ids;
    }

    public static void main(String[] arguments) throws SQLException {
        for (int n = 0; n < 1000; n++) TITLES.add(String.valueOf(n));
        server = connect(false);
        System.out.printf("  driver %s, Java %s%n", server.getMetaData().getDriverVersion(), Runtime.version());
        String sql = "INSERT INTO books (title) VALUES (?)";
        try (Statement statement = server.createStatement()) {
            statement.execute("CREATE TABLE books (title text, id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
        }
        check("IDs first", connection -> Books.add(connection, TITLES), true, 10);
        check("IDs first, without rewriting", connection -> Books.add(connection, TITLES), false, 1000);
        for (boolean rewrite : new boolean[] {true, false}) {
            check("keys", connection -> withKeys(connection.prepareStatement(sql, new String[] {"id"})), rewrite, 1000);
        }

        try (PreparedStatement insert = server.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, "one");
            insert.execute();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                same(keys.getString(1), "one", "the first key of RETURN_GENERATED_KEYS");
                same(keys.getLong("id"), number("SELECT id FROM books WHERE title = 'one'"), "the key by its name");
                String outcome = "a number";
                try { keys.getInt("id"); } catch (SQLException error) { outcome = error.getMessage(); }
                same(outcome, "Bad value for type int : " + keys.getLong("id"), "getInt()");
            }
        }
        server.close();
    }
}
