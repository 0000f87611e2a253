import java.util.ArrayList;
import java.util.List;
import javax.persistence.CascadeType;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.ManyToOne;
import javax.persistence.OneToMany;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

@Entity
class Author {
    @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
    String name;
    @OneToMany(mappedBy = "author", cascade = CascadeType.ALL) List<Book> books = new ArrayList<>();
}

@Entity
class Book {
    @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
    String title;
    @ManyToOne Author author;
    @OneToMany(mappedBy = "book", cascade = CascadeType.ALL) List<Copy> copies = new ArrayList<>();
}

@Entity
class Copy {
    @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
    @ManyToOne Book book;
}

class Library {
    /** Makes what the database lacks, and adds rows if there is a side. */
    public static void main(String[] side) {
        SessionFactory factory = new Configuration().addAnnotatedClass(Author.class).addAnnotatedClass(Book.class).addAnnotatedClass(Copy.class)
            .setProperty("hibernate.dialect", "org.hibernate.dialect.PostgreSQLDialect")
            .setProperty("hibernate.connection.driver_class", "org.postgresql.Driver")
            .setProperty("hibernate.connection.url", "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/" + System.getenv("PGDATABASE"))
            .setProperty("hibernate.connection.username", System.getenv("PGUSER"))
            .setProperty("hibernate.hbm2ddl.auto", "update").buildSessionFactory();
        if (side.length > 0) {
            Session session = factory.openSession();
            session.beginTransaction();
            for (int n = 0; n < 200; n++) {
                Author author = new Author();
                author.name = side[0] + n;
                for (int i = 0; i < 2; i++) {
                    Book book = new Book();
                    book.title = author.name + " " + i;
                    book.author = author;
                    author.books.add(book);
                    Copy copy = new Copy();
                    copy.book = book;
                    book.copies.add(copy);
                }
                session.save(author);
            }
            session.getTransaction().commit();
            session.close();
        }
        factory.close();
    }
}
