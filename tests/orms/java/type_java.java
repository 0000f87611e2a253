// Keys of type snowflake in Java: PostgreSQL's driver, in text and in binary form.
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Arrays;

class Type_javaTest {
    static final long ID = 249722523258744845L;

    interface Read { Object from(ResultSet row) throws SQLException; }

    static void same(Object got, Object expected, String what) {
        if (!got.equals(expected)) throw new AssertionError(what + ": got " + got + ", expected " + expected);
        System.out.println("  " + what + ": " + got);
    }

    static Object one(Connection connection, Read read, String query, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(query)) {
            for (int n = 0; n < values.length; n++) statement.setObject(n + 1, values[n]);
            try (ResultSet row = statement.executeQuery()) {
                row.next();
                return read.from(row);
            } catch (SQLException error) {
                return error.getMessage().split("\n")[0];
            }
        }
    }

    public static void main(String[] arguments) throws SQLException {
        String url = String.format("jdbc:postgresql://%s:%s/%s?user=%s", System.getenv("PGHOST"), System.getenv("PGPORT"),
            System.getenv("PGDATABASE"), System.getenv("PGUSER"));
        for (String options : new String[] {"", "&prepareThreshold=-1&binaryTransfer=true"}) try (Connection c = DriverManager.getConnection(url + options)) {
            try (Statement statement = c.createStatement()) {
                statement.execute("DROP TABLE IF EXISTS books");
                statement.execute("CREATE TABLE books (id snowflake PRIMARY KEY DEFAULT snowflake_nextval(), title text)");
            }
            Read number = row -> row.getLong(1);
            String where = "SELECT id FROM books WHERE id = ?", insert = "INSERT INTO books VALUES (?, 'one') RETURNING id";
            same(one(c, number, insert, ID), ID, "INSERT, getLong()");
            same(one(c, number, insert, 5), 5L, "INSERT of an int");
            same(one(c, number, where, ID), ID, "getLong()");
            same(one(c, row -> row.getString(1), where, ID), String.valueOf(ID), "getString()");
            same(one(c, row -> row.getObject(1).getClass().getName(), where, ID), "org.postgresql.util.PGobject", "getObject()");
            same(one(c, row -> row.getObject(1, Long.class), where, ID),
                "conversion to class java.lang.Long from snowflake not supported", "getObject(1, Long.class)");
            same(one(c, row -> row.getObject(1, Long.class), "SELECT id::bigint FROM books WHERE id = ?", ID), ID, "the same with a cast");
            same(one(c, number, "SELECT id FROM books WHERE id = ANY(?)", c.createArrayOf("bigint", new Long[] {ID})), ID, "an array");
            same(one(c, row -> Arrays.asList((Object[]) row.getArray(1).getArray()).get(0).getClass().getName(), "SELECT ARRAY[id] FROM books WHERE id = ?", ID),
                "org.postgresql.util.PGobject", "getArray()");
            same(one(c, row -> Arrays.asList((Object[]) row.getArray(1).getArray()).get(0), "SELECT ARRAY[id]::bigint[] FROM books WHERE id = ?", ID),
                ID, "getArray() with a cast");
            for (String type : new String[] {"snowflake", "bigint"}) {
                same(one(c, number, "SELECT id FROM books WHERE id::" + type + " = ?", String.valueOf(ID)),
                    "ERROR: operator does not exist: " + type + " = character varying", type + ", a String as a parameter");
            }
            try (PreparedStatement statement = c.prepareStatement("INSERT INTO books (title) VALUES ('new')", new String[] {"id"})) {
                statement.execute();
                try (ResultSet keys = statement.getGeneratedKeys()) {
                    keys.next();
                    same(keys.getLong(1), one(c, number, "SELECT id FROM books WHERE title = 'new'"), "getGeneratedKeys()");
                }
            }
        }
    }
}
